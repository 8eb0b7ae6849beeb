// SPDX-License-Identifier: Apache-2.0
//! A slab: values by number, as tokens carry it. Numbers of removed values are reused.

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
    /// The number that the next `add` will return.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    pub fn add(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = Some(value);
                number
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// None if the value was removed: an event may arrive later.
    pub fn get(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_values_are_reused() {
        let mut slots = Slots::default();
        let [first, second] = ["a", "b"].map(|value| slots.add(value));
        assert_eq!(slots.remove(first), Some("a"));
        assert!(slots.get(first).is_none() && slots.remove(first).is_none());
        assert_eq!(slots.next(), first);
        assert_eq!(slots.add("c"), first);
        assert_eq!(slots.next(), 2);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [&"c", &"b"]);
        assert_eq!(slots.get(second), Some(&mut "b"));
    }
}
