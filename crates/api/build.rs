//! Generates the gRPC types from `proto/` without an installed protoc.

use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("rackwright/v1"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    files.sort();
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Comments and positions are two thirds of the bytes. A program that reads the descriptors at each start does without.
    let mut bare = descriptors.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    fs::write(out.join("bare_descriptors.bin"), bare.encode_to_vec())?;
    tonic_prost_build::configure()
        .codec_path("crate::codec::Prost")
        .compile_fds(descriptors)?;
    Ok(())
}
