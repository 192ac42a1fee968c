//! Logs of launcher pods: the serial console of the guest, which KubeVirt prints as the log of the
//! container `guest-console-log`.
//!
//!   GET /api/v1/namespaces/{namespace}/pods/virt-launcher-…/log
//!
//! The serial console has no times, and the answer ends with what was printed until now: parameters
//! that ask for more are answered with a warning.

use bytes::Bytes;
use http::header::{HeaderValue, WARNING};
use http::{Method, StatusCode};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::instance::node_of;
use crate::route::ObjectRoute;
use crate::{Gateway, GatewayRequest, node, objects};
use virt::{InstancePhase, eviction, launcher};

const PODS: &str = "/api/v1/namespaces/";
/// The beginning of the names of launcher pods.
const NAME: &str = "virt-launcher-";
/// Parameters without effect.
const IGNORED: [&str; 4] = ["follow", "timestamps", "sinceSeconds", "sinceTime"];

/// The pod whose log a path is for, if it may be a launcher pod: namespace and name.
pub fn log_of(path: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = path.strip_prefix(PODS)?.split_once("/pods/")?;
    let pod = rest.strip_suffix("/log").filter(|pod| pod.starts_with(NAME))?;
    (is_plain(namespace) && is_plain(pod)).then_some((namespace, pod))
}

/// Whether a part of a path is a name: it becomes part of another path.
fn is_plain(name: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

pub(crate) async fn answer(gateway: &Gateway, asked: GatewayRequest) -> GatewayResult {
    if asked.parts.method != Method::GET {
        return Err(GatewayError::method_not_allowed());
    }
    let (namespace, name) =
        log_of(asked.parts.uri.path()).ok_or_else(GatewayError::no_such_path)?;
    let parameters = LogParameters::parse(asked.parts.uri.query().unwrap_or_default())?;
    let path = format!("{PODS}{namespace}/pods/{name}");
    let found = objects::find(&gateway.client, &path).await?;
    let missing = || {
        let message = format!("pods {name:?} not found");
        GatewayError::with_message(StatusCode::NOT_FOUND, message)
    };
    let pod = found.ok_or_else(missing)?;
    if !launcher::is_launcher(&pod) {
        return Err(GatewayError::unavailable(format!(
            "the log of pod {name} needs a pod runtime, which this server does not have"
        )));
    }
    if let Some(reason) = launcher::no_such_log(name, &parameters.container) {
        return Err(GatewayError::bad_request(reason));
    }
    let machine = eviction::instance_of(&pod).unwrap_or_default();
    let at = ObjectRoute { namespace: namespace.to_owned(), name: machine.to_owned() };
    let vmi = objects::find(&gateway.client, &objects::instance_path(&at)).await?;
    let runs = |vmi: &serde_json::Value| InstancePhase::of(vmi) == InstancePhase::Running;
    let Some(vmi) = vmi.filter(runs) else {
        return Err(GatewayError::bad_request(format!(
            "the virtual machine {machine} of pod {name} does not run; logs are those of a \
             running guest"
        )));
    };
    if vmi["spec"]["domain"]["devices"]["logSerialConsole"] == false {
        return Err(GatewayError::bad_request(format!(
            "the virtual machine {machine} has logSerialConsole: false, so its console has no log"
        )));
    }
    let requester = gateway.requester().for_machine(&vmi);
    let path = format!("/v1/vmis/{namespace}/{machine}/log");
    let log = node::ask(requester, node_of(&vmi)?, Method::GET, &path, Bytes::new()).await?;
    let log = log.slice_ref(parameters.part(&log));
    let mut reply = answer::with_type(StatusCode::OK, "text/plain; charset=utf-8", log);
    if let Some(ignored) = parameters.ignored {
        let text = format!(
            "299 - \"{ignored} has no effect: the log of a serial console has no times, and ends \
             now; `virtctl console {machine}` shows what follows\""
        );
        if let Ok(warning) = HeaderValue::from_str(&text) {
            reply.headers_mut().insert(WARNING, warning);
        }
    }
    Ok(reply)
}

/// The parameters of a request for a log.
#[derive(Debug, Default, PartialEq, Eq)]
struct LogParameters {
    container: String,
    /// Lines at the end.
    tail: Option<usize>,
    /// Bytes at the beginning of these.
    limit: Option<usize>,
    /// A parameter of the request that has no effect.
    ignored: Option<&'static str>,
}

impl LogParameters {
    fn parse(query: &str) -> Result<Self, GatewayError> {
        let mut found = Self::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let number = || {
                value.parse::<usize>().map_err(|_| {
                    GatewayError::bad_request(format!(
                        "{key}={value}: expected a number of 0 or more"
                    ))
                })
            };
            match key {
                "container" => value.clone_into(&mut found.container),
                "tailLines" => found.tail = Some(number()?),
                "limitBytes" => found.limit = Some(number()?),
                "previous" if value == "true" => {
                    return Err(GatewayError::bad_request(
                        "there is no log of a previous guest: each has a pod of its own",
                    ));
                }
                _ => {
                    let ignored = IGNORED.into_iter().find(|own| *own == key);
                    found.ignored = ignored.filter(|_| value != "false").or(found.ignored);
                }
            }
        }
        Ok(found)
    }

    /// The part of a log that is wanted.
    fn part<'a>(&self, log: &'a [u8]) -> &'a [u8] {
        let mut from = 0;
        if let Some(lines) = self.tail {
            // The end of the last line ends no line before it.
            let body = log.strip_suffix(b"\n").unwrap_or(log);
            let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
            from = match lines.checked_sub(1) {
                None => log.len(),
                Some(before) => ends.nth(before).map_or(0, |(end, _)| end + 1),
            };
        }
        let part = &log[from..];
        &part[..self.limit.map_or(part.len(), |most| most.min(part.len()))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_launcher_pods_have_paths_of_their_own() {
        let path = |pod: &str| format!("/api/v1/namespaces/prod/pods/{pod}");
        assert_eq!(log_of(&path("virt-launcher-web-x/log")), Some(("prod", "virt-launcher-web-x")));
        for other in [
            "shell/log",
            "virt-launcher-web-x",
            "virt-launcher-web-x/exec",
            "virt-launcher-a/b/log",
            "virt-launcher-a%2Fb/log",
        ] {
            assert_eq!(log_of(&path(other)), None, "{other}");
        }
    }

    #[test]
    fn the_end_of_a_log_has_as_many_lines_as_are_wanted() {
        let part = |query: &str, log: &'static str| {
            let parameters = LogParameters::parse(query).unwrap();
            std::str::from_utf8(parameters.part(log.as_bytes())).unwrap().to_owned()
        };
        for (query, log, expected) in [
            ("", "a\nb\n", "a\nb\n"),
            ("tailLines=1", "a\nb\nc\n", "c\n"),
            ("tailLines=2", "a\nb\nc", "b\nc"),
            ("tailLines=9", "a\nb\n", "a\nb\n"),
            ("tailLines=0", "a\nb\n", ""),
            ("limitBytes=3", "a\nb\n", "a\nb"),
            ("tailLines=1&limitBytes=1", "a\nbc\n", "b"),
            ("tailLines=1", "", ""),
        ] {
            assert_eq!(part(query, log), expected, "{query} of {log:?}");
        }
        assert!(LogParameters::parse("tailLines=-1").unwrap_err().message.contains("tailLines"));
        assert!(LogParameters::parse("previous=true").is_err());
        let ignored = |query: &str| LogParameters::parse(query).unwrap().ignored;
        assert_eq!(ignored("follow=true&container=compute"), Some("follow"));
        assert_eq!(ignored("follow=false&tailLines=5"), None);
    }
}
