// SPDX-License-Identifier: Apache-2.0
//! The words, signs and numbers of a statement.

use super::Result;

/// Parse a number in STF's syntax: decimal, 0x, 0b, 0o.
pub fn number(text: &str) -> Option<num_bigint::BigInt> {
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match lower.get(..2) {
        Some("0x") => (&lower[2..], 16),
        Some("0b") => (&lower[2..], 2),
        Some("0o") => (&lower[2..], 8),
        _ => (lower.as_str(), 10),
    };
    // A number of a thousand digits is wider than any field.
    if digits.is_empty() || digits.len() > 5000 || !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    num_bigint::BigInt::parse_bytes(digits.as_bytes(), base)
}

/// Words and signs of a statement.
pub(super) struct Words {
    words: std::vec::IntoIter<String>,
    ahead: Option<String>,
}

impl Words {
    pub fn new(text: &str) -> Result<Self> {
        let mut words = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                letter if letter.is_whitespace() => {}
                '"' => {
                    let mut word = String::new();
                    loop {
                        match letters.next() {
                            Some('"') => break,
                            Some(letter) => word.push(letter),
                            None => return Err("a quoted name without its closing quote".into()),
                        }
                    }
                    words.push(word);
                }
                ':' | ',' | '(' | ')' | '/' => words.push(letter.to_string()),
                '=' | '<' | '>' | '!' => {
                    let mut sign = letter.to_string();
                    sign.extend(letters.next_if_eq(&'='));
                    words.push(sign);
                }
                letter if is_word_letter(letter) => {
                    let mut word = letter.to_string();
                    while let Some(letter) = letters.next_if(|letter| is_word_letter(*letter)) {
                        word.push(letter);
                    }
                    words.push(word);
                }
                other => return Err(format!("unexpected {other:?}")),
            }
        }
        let mut words = words.into_iter();
        let ahead = words.next();
        Ok(Self { words, ahead })
    }

    pub fn peek(&self) -> Option<&str> {
        self.ahead.as_deref()
    }

    pub fn next(&mut self) -> Option<String> {
        std::mem::replace(&mut self.ahead, self.words.next())
    }

    pub fn word(&mut self) -> Result<String> {
        match self.next() {
            Some(word) if word.is_empty() || word.starts_with(is_word_letter) || word.contains(' ') => {
                Ok(word)
            }
            Some(sign) => Err(format!("expected a name or a number, found {sign:?}")),
            None => Err("the statement is incomplete".into()),
        }
    }

    pub fn expect(&mut self, sign: &str) -> Result<()> {
        match self.next() {
            Some(word) if word == sign => Ok(()),
            Some(word) => Err(format!("expected {sign:?}, found {word:?}")),
            None => Err(format!("expected {sign:?} at the end of the statement")),
        }
    }

    pub fn number<T: TryFrom<num_bigint::BigInt>>(&mut self) -> Result<T> {
        let word = self.word()?;
        let value = number(&word).and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| format!("{word:?} is not a number in range"))
    }

    pub fn numbers<T: TryFrom<num_bigint::BigInt>>(&mut self) -> Result<Vec<T>> {
        let mut numbers = Vec::new();
        while self.peek().is_some() {
            numbers.push(self.number()?);
        }
        Ok(numbers)
    }
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$' | '.' | '*' | '[' | ']' | '-')
}
