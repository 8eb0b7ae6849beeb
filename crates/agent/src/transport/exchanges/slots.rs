// SPDX-License-Identifier: Apache-2.0
//! Things that come and go, by a number that tokens can carry.

#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// The number that the next one will have.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    pub fn add(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = Some(thing);
                number
            }
            None => {
                self.slots.push(Some(thing));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// None: it has gone, and something is told of it still.
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_when_its_thing_has_gone() {
        let mut slots = Slots::default();
        let [first, second] = ["a", "b"].map(|thing| slots.add(thing));
        assert_eq!(slots.remove(first), Some("a"));
        assert!(slots.get(first).is_none() && slots.remove(first).is_none());
        assert_eq!(slots.next(), first);
        assert_eq!(slots.add("c"), first);
        assert_eq!(slots.next(), 2);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [&"c", &"b"]);
        assert_eq!(slots.get(second), Some(&mut "b"));
    }
}
