// SPDX-License-Identifier: Apache-2.0
//! `p4switch`: what a P4 program needs, and whether it does what its tests say.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use qbed_p4switch::{check, load};

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check { program } => check_program(&program),
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
    print!("{}", check::summary(&program));
    Ok(())
}
