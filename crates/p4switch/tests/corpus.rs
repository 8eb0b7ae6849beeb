// SPDX-License-Identifier: Apache-2.0
//! p4c's public STF files, unchanged: QBED_STF is a folder with NAME.stf and NAME.json (of p4c-bm2-ss).
//!
//! The files are not part of this repository; without the folder the test prints that it is skipped. It does not use
//! libtest, which would hide its output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use qbed_p4switch::{load, replay, stf};

enum Outcome {
    Passed,
    Failed(Vec<String>),
    Refused(String),
}

fn main() -> ExitCode {
    let Some(folder) = std::env::var_os("QBED_STF").filter(|folder| !folder.is_empty()).map(PathBuf::from)
    else {
        println!("stf: skipped: QBED_STF names no folder with p4c's STF files and their programs");
        return ExitCode::SUCCESS;
    };
    let mut files: Vec<PathBuf> = match folder.read_dir() {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
        Err(error) => {
            println!("stf: {}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    files.retain(|file| {
        file.extension().is_some_and(|end| end == "stf") && file.with_extension("json").exists()
    });
    files.sort();
    let (mut passed, mut failed, mut refused) = (0, 0, 0);
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        match run(file) {
            Outcome::Passed => passed += 1,
            Outcome::Failed(failures) => {
                failed += 1;
                println!("{name}: failed: {}", failures.join("\n  "));
            }
            Outcome::Refused(why) => {
                refused += 1;
                println!("{name}: refused: {why}");
            }
        }
    }
    println!("stf: {} files: {passed} passed, {failed} failed, {refused} refused", files.len());
    if passed > 0 && passed == files.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(file: &Path) -> Outcome {
    match replay_file(file) {
        Ok(failures) if failures.is_empty() => Outcome::Passed,
        Ok(failures) => Outcome::Failed(failures),
        Err(why) => Outcome::Refused(why),
    }
}

fn replay_file(file: &Path) -> Result<Vec<String>, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| error.to_string());
    let program = load::load(&read(&file.with_extension("json"))?).map_err(|refused| refused.to_string())?;
    let text = String::from_utf8(read(file)?).map_err(|error| error.to_string())?;
    let lines = stf::parse(&text).map_err(|malformed| malformed.to_string())?;
    Ok(replay::replay(program, &lines)?.failures)
}
