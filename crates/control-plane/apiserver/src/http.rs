//! The wire: connections, routes, content negotiation, request bodies and responses. Has no
//! knowledge of any kind.

pub(crate) mod activity;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod decode;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod page;
pub(crate) mod pretty;
pub(crate) mod respond;
pub(crate) mod route;
pub(crate) mod server;
pub(crate) mod stream_credentials;
pub(crate) mod verb;
pub(crate) mod verb_result;
pub(crate) mod warnings;
pub(crate) mod websocket;
