// SPDX-License-Identifier: Apache-2.0
//! `p4switch`: checks, tests and benchmarks P4 programs, and serves P4Runtime for the switch in the kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use nix::time::{clock_gettime, ClockId};
use qbed_p4engine::program::Program;
use qbed_p4engine::Engine;
use qbed_p4switch::printable::printable;
use qbed_p4switch::{bench, check, load, replay, serve, stf};

/// A switch for P4 programs of the v1model architecture, as p4c-bm2-ss compiles them to BMv2's JSON.
#[derive(Parser)]
#[command(version = option_env!("QBED_SOURCES").unwrap_or("built by hand"))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a program's tables, actions and their cost, or why it cannot run.
    Check {
        /// BMv2 JSON of p4c-bm2-ss (PROGRAM.json).
        program: PathBuf,
    },
    /// Run STF files (packets in, packets expected) against a program. Fails if a packet differs or is missing.
    Test {
        /// BMv2 JSON of p4c-bm2-ss (PROGRAM.json).
        program: PathBuf,
        /// Each file starts with empty tables and registers.
        #[arg(required = true)]
        stf: Vec<PathBuf>,
        /// Print the program's log messages.
        #[arg(long)]
        log: bool,
        /// Time from one packet to the next, in microseconds.
        #[arg(long, value_name = "US", default_value_t = 1000)]
        every_us: u32,
    },
    /// Measure packets per CPU second: runs an STF file's commands once, then its packets repeatedly.
    Bench {
        /// BMv2 JSON of p4c-bm2-ss (PROGRAM.json).
        program: PathBuf,
        stf: PathBuf,
        #[arg(long, default_value_t = 1.0, value_parser = seconds)]
        seconds: f64,
        /// Resize the file's UDP datagrams to this length; packets that are then not forwarded are left out.
        #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(42..=9014))]
        size: Option<u16>,
        /// Run the program without machine code.
        #[arg(long)]
        interpret: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve P4Runtime for the P4 switch of this network namespace until killed.
    Serve(serve::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check { program } => check_program(&program),
        Command::Test { program, stf, log, every_us } => test_program(&program, &stf, log, every_us.into()),
        Command::Bench { program, stf, seconds, size, interpret, json } => {
            bench_program(&program, &stf, seconds, size, interpret, json)
        }
        Command::Serve(options) => serve::serve(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("p4switch: {}", printable(&message));
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_program(path: &Path) -> Result<Program, String> {
    load::load(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_stf(path: &Path) -> Result<Vec<stf::Line>, String> {
    let text = String::from_utf8(read(path)?).map_err(|_| format!("{}: not UTF-8", path.display()))?;
    stf::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number from 0.01 to 3600".into())
}

fn check_program(path: &Path) -> Result<(), String> {
    let program = read_program(path)?;
    let engine = Engine::load(program).map_err(|unfit| format!("{}: {}", path.display(), unfit.0))?;
    print!("{}", printable(&check::summary(engine.program())));
    Ok(())
}

fn test_program(path: &Path, files: &[PathBuf], log: bool, interval_us: u64) -> Result<(), String> {
    let program = read_program(path)?;
    let mut failed = 0;
    for file in files {
        let lines = read_stf(file)?;
        let report = replay::replay_every(program.clone(), &lines, interval_us)
            .map_err(|why| format!("{}: {why}", path.display()))?;
        if log {
            report
                .messages
                .iter()
                .for_each(|message| println!("{}: log: {}", file.display(), printable(message)));
        }
        let packets = format!("{} packets in, {} out", report.packets_in, report.packets_out);
        match report.failures.is_empty() {
            true => println!("{}: passed: {packets}", file.display()),
            false => println!("{}: failed: {packets}", file.display()),
        }
        report.failures.iter().for_each(|failure| println!("  {}", printable(failure)));
        failed += usize::from(!report.failures.is_empty());
    }
    if failed > 0 {
        Err(format!("{failed} of {} files failed", files.len()))
    } else {
        Ok(())
    }
}

/// CPU time of this process.
fn cpu_seconds() -> f64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(0.0, |now| Duration::from(now).as_secs_f64())
}

fn bench_program(
    path: &Path,
    file: &Path,
    seconds: f64,
    size: Option<u16>,
    interpret: bool,
    json: bool,
) -> Result<(), String> {
    let program = read_program(path)?;
    let prepared =
        replay::prepare(program, &read_stf(file)?).map_err(|why| format!("{}: {why}", file.display()));
    let (mut switch, mut packets) = prepared?;
    if interpret {
        switch.interpret();
    }
    if let Some(size) = size {
        packets = bench::resize_all(&mut switch, &packets, size.into());
    }
    if packets.is_empty() {
        return Err(format!(
            "{}: no packets{}",
            file.display(),
            size.map_or("", |_| " that can have this length")
        ));
    }
    let bytes = packets.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() / packets.len();
    let bench::Measured { packets: taken, sent, seconds, min_ns } =
        bench::measure(&mut switch, &packets, seconds, cpu_seconds);
    let rate = taken as f64 / seconds;
    if json {
        let measured = serde_json::json!({
            "packets": taken, "sent": sent, "bytes": bytes, "packets_per_cpu_s": rate, "min_ns": min_ns
        });
        println!("{measured}");
    } else {
        println!(
            "{rate:.0} packets per CPU second, {:.0} ns each, {min_ns:.0} in the best 50 ms; {taken} packets of {bytes} \
             bytes on average, {sent} sent",
            1e9 / rate
        );
    }
    Ok(())
}
