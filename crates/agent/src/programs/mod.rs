// SPDX-License-Identifier: Apache-2.0
//! Programs of the machine that run in the lab's nodes.

pub mod children;
pub mod exec;
pub mod launched;
pub mod resident;
pub mod terminal;

use crate::results::files;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Of a dead program's log, how much is told: of its beginning, and of its end.
const FIRST_WORDS: usize = 150;
const LAST_WORDS: usize = 300;
/// Of a log, no more than this of its beginning and of its end is read: it may be longer than the memory.
const EDGE_BYTES: u64 = 4096;

fn program_name(argv: &[String]) -> &str {
    let name = argv.first().and_then(|path| Path::new(path).file_name());
    name.and_then(|name| name.to_str()).unwrap_or("its program")
}

/// The end of a file of results, to be put behind a sentence.
fn last_words(log: &str) -> String {
    let text = edges(&files::out(log)).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_WORDS)..]).trim().to_owned();
    if end.is_empty() {
        String::new()
    } else {
        format!("; out/{log} says last: {end}")
    }
}

/// The same with its beginning: who does not understand its arguments says so first, and then how they are.
fn words(log: &str) -> String {
    let text = edges(&files::out(log)).unwrap_or_default();
    let all = String::from_utf8_lossy(&text);
    if all.trim().is_empty() {
        return String::new();
    }
    format!("; out/{log} says: {}", shortened(all.trim()))
}

fn edges(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    file.by_ref().take(EDGE_BYTES).read_to_end(&mut text)?;
    file.seek(SeekFrom::Start(length.saturating_sub(EDGE_BYTES).max(EDGE_BYTES)))?;
    file.take(EDGE_BYTES).read_to_end(&mut text)?;
    Ok(text)
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
    use super::{edges, shortened};

    #[test]
    fn of_a_long_log_its_edges_are_read() {
        let log = std::env::temp_dir().join(format!("qbed-edges-{}", std::process::id()));
        for (length, kept) in [(0, 0), (4096, 4096), (5000, 5000), (8192, 8192), (9000, 8192)] {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&log, &text).unwrap();
            let found = edges(&log).unwrap();
            let last = kept.min(4096);
            assert_eq!((found.len(), &found[..last]), (kept, &text[..last]));
            assert_eq!(found[kept - last..], text[text.len() - last..]);
        }
        std::fs::remove_file(&log).unwrap();
    }

    #[test]
    fn of_a_long_text_the_beginning_and_the_end_are_told() {
        let long = format!("unrecognized option{}the end", " usage".repeat(100_000));
        let told = shortened(&long);
        assert!(told.starts_with("unrecognized option usage") && told.ends_with("usagethe end"), "{told}");
        assert!(told.chars().count() < 500 && shortened("all of it") == "all of it");
    }
}
