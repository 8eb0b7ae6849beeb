// SPDX-License-Identifier: Apache-2.0
//! Routing of events and deadlines to the parts of the engine. A part allocates a *topic* for each kind of event
//! (`World::topic`) and numbers the events within it, by flow or by node. Topic and index form a *token*, which epoll
//! or the agenda returns with the event.

/// A part of the engine that owns topics. Transports are identified by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Timer,
    Alarm,
    Gate,
    Children,
    Pipes,
    Kills,
    Daemons,
    LaunchStarts,
    LaunchStops,
    LaunchKills,
    Forwarding,
    Taps,
    Captures,
    Routes,
    Links,
    Changes,
    Windows,
    Statistics,
    Devices,
    Progress,
    Transport(usize),
}

/// One kind of event or deadline of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic(u32);

/// A topic and an index that the topic's part has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub topic: Topic,
    pub index: u32,
}

impl Topic {
    pub fn at(self, index: u32) -> Token {
        Token { topic: self, index }
    }

    /// The token of a topic that has only one.
    pub fn only(self) -> Token {
        self.at(0)
    }
}

/// Encodes a token as epoll data.
impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        Self::from(token.topic.0) << 32 | Self::from(token.index)
    }
}

impl From<u64> for Token {
    fn from(data: u64) -> Self {
        Self { topic: Topic((data >> 32) as u32), index: data as u32 }
    }
}

/// Allocated topics: the owner of each, by number.
pub struct Topics<P>(Vec<P>);

impl<P> Default for Topics<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: Copy> Topics<P> {
    pub fn allocate(&mut self, part: P) -> Topic {
        self.0.push(part);
        Topic(self.0.len() as u32 - 1)
    }

    pub fn part(&self, token: Token) -> P {
        self.0[token.topic.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn topics_are_unique_and_map_to_their_owner() {
        let mut topics = Topics::default();
        let owners = [Part::Taps, Part::Transport(0), Part::Transport(1), Part::Transport(0), Part::Taps];
        let allocated: Vec<Topic> = owners.into_iter().map(|part| topics.allocate(part)).collect();
        for (topic, part) in allocated.iter().zip(owners) {
            assert_eq!(topics.part(topic.at(u32::MAX)), part);
            assert_eq!(allocated.iter().filter(|other| *other == topic).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn tokens_round_trip_through_epoll_data(topic: u32, index: u32) {
            let token = Topic(topic).at(index);
            prop_assert_eq!(Token::from(u64::from(token)), token);
        }
    }
}
