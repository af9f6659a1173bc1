//! The gateway in front of a scripted gRPC service.

mod common;
mod connect;
mod console_types;
mod openapi;
mod rest;
mod uploads;
mod websocket;
