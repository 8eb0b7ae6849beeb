// SPDX-License-Identifier: Apache-2.0
//! `p4image`: reads BMv2's JSON from the standard input and writes the program's image to the standard output.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::process::ExitCode;

use nix::sys::resource::{setrlimit, Resource};
use qbed_p4device::image;
use qbed_p4engine::Engine;

const USAGE: &str = "p4image <PROGRAM.json >IMAGE  compiles BMv2's JSON; `qbed` does so before a lab starts
p4image --version            the hash of the sources that it was built from (tools/sources)";

/// Limits for untrusted programs.
const MAX_MEMORY_BYTES: u64 = 2 << 30;
const MAX_CPU_S: u64 = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--version"] => {
            println!("{}", option_env!("QBED_SOURCES").unwrap_or("built by hand"));
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    }
    match limit().and_then(|()| compile()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn limit() -> Result<(), String> {
    for (resource, limit) in [(Resource::RLIMIT_AS, MAX_MEMORY_BYTES), (Resource::RLIMIT_CPU, MAX_CPU_S)] {
        setrlimit(resource, limit, limit).map_err(|error| format!("setrlimit: {error}"))?;
    }
    Ok(())
}

fn compile() -> Result<(), String> {
    let mut json = Vec::new();
    io::stdin().read_to_end(&mut json).map_err(|error| format!("standard input: {error}"))?;
    let program = qbed_p4switch::load::load(&json).map_err(|error| error.to_string())?;
    let image = image::write(&program).map_err(|error| error.to_string())?;
    Engine::load(program).map_err(|invalid| invalid.0)?; // the kernel's engine checks the same
    io::stdout().write_all(&image).map_err(|error| format!("standard output: {error}"))
}
