// SPDX-License-Identifier: Apache-2.0
//! Errors of requests, with gRPC's codes.

use prost::Message;
use qbed_p4engine::control::{Answer, Refusal};
use tonic::{Code, Status};

use crate::proto::google::rpc;
use crate::proto::p4::v1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    pub code: Code,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, RequestError>;

macro_rules! refusals {
    ($($name:ident = $code:ident),* $(,)?) => { $(
        pub fn $name(message: impl Into<String>) -> RequestError {
            RequestError { code: Code::$code, message: message.into() }
        }
    )* };
}

refusals! {
    invalid = InvalidArgument,
    not_found = NotFound,
    already_exists = AlreadyExists,
    denied = PermissionDenied,
    exhausted = ResourceExhausted,
    precondition = FailedPrecondition,
    out_of_range = OutOfRange,
    unimplemented = Unimplemented,
    internal = Internal,
}

impl From<RequestError> for Status {
    fn from(refused: RequestError) -> Status {
        Status::new(refused.code, refused.message)
    }
}

/// Convert a refusal of the engine to an error.
pub fn accepted(answer: Answer) -> Result<Answer> {
    let Answer::Refused(refusal, message) = answer else { return Ok(answer) };
    let code = match refusal {
        Refusal::InvalidArgument => Code::InvalidArgument,
        Refusal::NotFound => Code::NotFound,
        Refusal::AlreadyExists => Code::AlreadyExists,
        Refusal::ResourceExhausted => Code::ResourceExhausted,
        Refusal::PermissionDenied => Code::PermissionDenied,
        Refusal::FailedPrecondition => Code::FailedPrecondition,
        Refusal::OutOfRange => Code::OutOfRange,
        Refusal::Unimplemented => Code::Unimplemented,
    };
    Err(RequestError { code, message })
}

/// The error for an answer that does not belong to the request.
pub fn unexpected(answer: &Answer) -> RequestError {
    internal(format!("the engine answered {answer:?}"))
}

/// The status of a batch, with a `p4.v1.Error` for each update. None if all succeeded.
pub fn batch_status(kind: &str, results: &[Result<()>]) -> Option<Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return None;
    }
    let message = format!("{failed} of {} {kind} failed", results.len());
    let details = results.iter().map(|result| {
        let error = match result {
            Ok(()) => v1::Error::default(),
            Err(refused) => v1::Error {
                canonical_code: refused.code as i32,
                message: refused.message.clone(),
                ..Default::default()
            },
        };
        prost_types::Any { type_url: "type.googleapis.com/p4.v1.Error".into(), value: error.encode_to_vec() }
    });
    let status =
        rpc::Status { code: Code::Unknown as i32, message: message.clone(), details: details.collect() };
    Some(Status::with_details(Code::Unknown, message, status.encode_to_vec().into()))
}
