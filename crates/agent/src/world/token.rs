// SPDX-License-Identifier: Apache-2.0
//! Whom an event or a deadline is for. A part of the engine asks for a *topic* for each kind of thing that it waits for
//! (`World::topic`), and within it numbers as it likes: by flow, by node. Both together are a *token*, which the kernel
//! or the agenda hands back.

/// Of the engine: who asks for topics. All that the engine knows of a transport is its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Timer,
    Alarm,
    Gate,
    Children,
    Pipes,
    Kills,
    Programs,
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

/// One kind of event or deadline, of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topic(u32);

/// What comes back: a topic, and its part's own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub topic: Topic,
    pub index: u32,
}

impl Topic {
    pub fn at(self, index: u32) -> Token {
        Token { topic: self, index }
    }

    /// Of a topic with one token only.
    pub fn only(self) -> Token {
        self.at(0)
    }
}

/// As epoll carries it.
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

/// The topics that were handed out: by number, to whom.
pub struct Topics<P>(Vec<P>);

impl<P> Default for Topics<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: Copy> Topics<P> {
    pub fn hand_out(&mut self, part: P) -> Topic {
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
    fn no_topic_is_handed_out_twice_and_each_comes_back_to_who_asked() {
        let mut topics = Topics::default();
        let asked = [Part::Taps, Part::Transport(0), Part::Transport(1), Part::Transport(0), Part::Taps];
        let handed: Vec<Topic> = asked.into_iter().map(|part| topics.hand_out(part)).collect();
        for (topic, part) in handed.iter().zip(asked) {
            assert_eq!(topics.part(topic.at(u32::MAX)), part);
            assert_eq!(handed.iter().filter(|other| *other == topic).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn tokens_survive_the_kernel(topic: u32, index: u32) {
            let token = Topic(topic).at(index);
            prop_assert_eq!(Token::from(u64::from(token)), token);
        }
    }
}
