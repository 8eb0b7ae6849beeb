// SPDX-License-Identifier: Apache-2.0
//! `p4switch`: what a P4 program needs, and whether it does what its tests say.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use qbed_p4engine::Engine;
use qbed_p4switch::{check, load, replay, stf};

/// A switch for P4 programs of the v1model architecture, as p4c-bm2-ss compiles them to BMv2's JSON.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a program has (tables, actions, what they cost), or why it cannot run.
    Check {
        /// BMv2 JSON of p4c-bm2-ss (PROGRAM.json).
        program: PathBuf,
    },
    /// Run STF files (packets in, packets expected) against a program; fails unless all comes out as they say.
    Test {
        /// BMv2 JSON of p4c-bm2-ss (PROGRAM.json).
        program: PathBuf,
        /// Each is run from the program's beginning.
        #[arg(required = true)]
        stf: Vec<PathBuf>,
        /// Print what the program logs.
        #[arg(long)]
        log: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check { program } => check_program(&program),
        Command::Test { program, stf, log } => test_program(&program, &stf, log),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("p4switch: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_program(path: &Path) -> Result<(), String> {
    let program = load::load(&read(path)?).map_err(|refused| format!("{}: {refused}", path.display()))?;
    let engine = Engine::load(program).map_err(|unfit| format!("{}: {}", path.display(), unfit.0))?;
    print!("{}", check::summary(engine.program()));
    Ok(())
}

fn test_program(path: &Path, files: &[PathBuf], log: bool) -> Result<(), String> {
    let program = load::load(&read(path)?).map_err(|refused| format!("{}: {refused}", path.display()))?;
    let mut failed = 0;
    for file in files {
        let text = String::from_utf8(read(file)?).map_err(|_| format!("{}: not a text", file.display()))?;
        let lines = stf::parse(&text).map_err(|malformed| format!("{}: {malformed}", file.display()))?;
        let report =
            replay::replay(program.clone(), &lines).map_err(|why| format!("{}: {why}", path.display()))?;
        if log {
            report.messages.iter().for_each(|message| println!("{}: log: {message}", file.display()));
        }
        let packets = format!("{} packets in, {} out", report.packets_in, report.packets_out);
        match report.failures.is_empty() {
            true => println!("{}: passed: {packets}", file.display()),
            false => println!("{}: failed: {packets}", file.display()),
        }
        report.failures.iter().for_each(|failure| println!("  {failure}"));
        failed += usize::from(!report.failures.is_empty());
    }
    if failed > 0 {
        Err(format!("{failed} of {} files failed", files.len()))
    } else {
        Ok(())
    }
}
