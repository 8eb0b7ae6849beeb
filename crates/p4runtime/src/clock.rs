// SPDX-License-Identifier: Apache-2.0
//! The wall clock of P4Runtime's timestamps.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
pub fn since_epoch_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
