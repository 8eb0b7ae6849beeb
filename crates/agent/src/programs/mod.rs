// SPDX-License-Identifier: Apache-2.0
//! Programs that run in the lab's nodes.

pub mod children;
pub mod daemons;
pub mod exec;
pub mod launches;
pub mod terminal;

use crate::results::files;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Length of log excerpts in error texts: characters from the start and from the end.
const HEAD_CHARS: usize = 150;
const TAIL_CHARS: usize = 300;
/// Bytes that are read from the start and from the end of a log, which may be larger than the memory.
const EDGE_BYTES: u64 = 4096;

fn program_name(argv: &[String]) -> &str {
    let name = argv.first().and_then(|path| Path::new(path).file_name());
    name.and_then(|name| name.to_str()).unwrap_or("its program")
}

/// The end of a log, as the last clause of an error text.
fn log_tail(log: &str) -> String {
    let text = read_edges(&files::out_path(log)).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_CHARS)..]).trim().to_owned();
    if end.is_empty() {
        String::new()
    } else {
        format!("; out/{log} ends with: {end}")
    }
}

/// Start and end of a log, as the last clause of an error text. A program that rejects its arguments prints the error
/// first and its usage after it.
fn log_excerpt(log: &str) -> String {
    let text = read_edges(&files::out_path(log)).unwrap_or_default();
    let all = String::from_utf8_lossy(&text);
    if all.trim().is_empty() {
        return String::new();
    }
    format!("; out/{log}: {}", elide_middle(all.trim()))
}

/// Reads the first and the last `EDGE_BYTES` of a file.
fn read_edges(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    file.by_ref().take(EDGE_BYTES).read_to_end(&mut text)?;
    file.seek(SeekFrom::Start(length.saturating_sub(EDGE_BYTES).max(EDGE_BYTES)))?;
    file.take(EDGE_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Replaces the middle of a long text by an ellipsis.
fn elide_middle(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= HEAD_CHARS + TAIL_CHARS {
        return text.to_owned();
    }
    let (head, tail) = (&characters[..HEAD_CHARS], &characters[characters.len() - TAIL_CHARS..]);
    format!(
        "{} … {}",
        head.iter().collect::<String>().trim_end(),
        tail.iter().collect::<String>().trim_start()
    )
}

#[cfg(test)]
mod tests {
    use super::{elide_middle, read_edges};

    #[test]
    fn only_the_edges_of_a_long_log_are_read() {
        let log = std::env::temp_dir().join(format!("qbed-edges-{}", std::process::id()));
        for (length, kept) in [(0, 0), (4096, 4096), (5000, 5000), (8192, 8192), (9000, 8192)] {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&log, &text).unwrap();
            let found = read_edges(&log).unwrap();
            let last = kept.min(4096);
            assert_eq!((found.len(), &found[..last]), (kept, &text[..last]));
            assert_eq!(found[kept - last..], text[text.len() - last..]);
        }
        std::fs::remove_file(&log).unwrap();
    }

    #[test]
    fn a_long_text_keeps_its_start_and_end() {
        let long = format!("unrecognized option{}the end", " usage".repeat(100_000));
        let short = elide_middle(&long);
        assert!(short.starts_with("unrecognized option usage") && short.ends_with("usagethe end"), "{short}");
        assert!(short.chars().count() < 500 && elide_middle("all of it") == "all of it");
    }
}
