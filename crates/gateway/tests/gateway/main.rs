//! The gateway in front of a scripted gRPC service.

mod common;
mod connect;
mod openapi;
mod rest;
