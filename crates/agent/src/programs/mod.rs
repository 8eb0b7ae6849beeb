// SPDX-License-Identifier: Apache-2.0
//! Programs of the machine that run in the lab's nodes.

pub mod children;
pub mod exec;
pub mod launched;
pub mod resident;

use crate::results::files;
use std::fs;
use std::path::Path;

/// Of a dead program's log, how much is told: of its beginning, and of its end.
const FIRST_WORDS: usize = 150;
const LAST_WORDS: usize = 300;

fn program_name(argv: &[String]) -> &str {
    let name = argv.first().and_then(|path| Path::new(path).file_name());
    name.and_then(|name| name.to_str()).unwrap_or("its program")
}

/// The end of a file of results, to be put behind a sentence.
fn last_words(log: &str) -> String {
    let text = fs::read(files::out(log)).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_WORDS)..]).trim().to_owned();
    if end.is_empty() {
        String::new()
    } else {
        format!("; out/{log} says last: {end}")
    }
}

/// The same with its beginning: who does not understand its arguments says so first, and then how they are.
fn words(log: &str) -> String {
    let text = fs::read(files::out(log)).unwrap_or_default();
    let all = String::from_utf8_lossy(&text);
    if all.trim().is_empty() {
        return String::new();
    }
    format!("; out/{log} says: {}", shortened(all.trim()))
}

fn shortened(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= FIRST_WORDS + LAST_WORDS {
        return text.to_owned();
    }
    let (first, last) = (&letters[..FIRST_WORDS], &letters[letters.len() - LAST_WORDS..]);
    format!(
        "{} … {}",
        first.iter().collect::<String>().trim_end(),
        last.iter().collect::<String>().trim_start()
    )
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn of_a_long_text_the_beginning_and_the_end_are_told() {
        let long = format!("unrecognized option{}the end", " usage".repeat(100_000));
        let told = shortened(&long);
        assert!(told.starts_with("unrecognized option usage") && told.ends_with("usagethe end"), "{told}");
        assert!(told.chars().count() < 500 && shortened("all of it") == "all of it");
    }
}
