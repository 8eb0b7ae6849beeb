// SPDX-License-Identifier: Apache-2.0
//! The P4 switch of the guest's kernel, from user space: requests to its device, and images of programs.
#![forbid(unsafe_code)]

mod device;
pub mod image;

pub use device::{events, Command, Device, Event, DEVICE, DIGEST, PACKET};
