// SPDX-License-Identifier: Apache-2.0
//! Generates P4Runtime's messages and service from the .proto files of `tools/protos`.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    // Read when it runs, not when it is compiled: clones share the target folder.
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let script = root.join("tools/protos");
    for source in [&script, &root.join("orchestrator/requirements.lock")] {
        println!("cargo:rerun-if-changed={}", source.display());
    }
    let output = Command::new(&script).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", script.display(), output.status).into());
    }
    let folder = String::from_utf8(output.stdout)?;
    let files = protox::compile(["p4/v1/p4runtime.proto"], [folder.trim()])?;
    // For P4Info in text format.
    let descriptors = Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(descriptors, files.encode_to_vec())?;
    tonic_build::configure().compile_fds(files)?;
    Ok(())
}
