//! Whether a machine can join a cluster. Pure: everything that is wrong is reported at once, each
//! with what would make it right.

use jiff::Timestamp;

/// Certificates and leases misbehave when clocks differ by more.
const MAX_CLOCK_SKEW_SECONDS: i64 = 30;

/// Facts about the machine, the token and the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JoinFacts {
    pub(super) node: String,
    pub(super) now: Timestamp,
    /// The clock of the server, if it reported it.
    pub(super) server_time: Option<Timestamp>,
    pub(super) own_version: String,
    /// Sheaf's version of the server, if it is one.
    pub(super) server_version: Option<String>,
    pub(super) token_id: String,
    pub(super) token_expires: Option<Timestamp>,
    pub(super) name: NameState,
}

/// The cluster's state of the name that the node would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameState {
    Free,
    /// This machine has been the node before: it joins again with its key.
    Own,
    Taken,
    /// The cluster does not accept the token.
    Unknown,
}

/// Everything that keeps the machine from joining; empty if nothing does.
pub(super) fn problems(facts: &JoinFacts) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(server) = facts.server_time {
        let skew = facts.now.as_second() - server.as_second();
        if skew.abs() > MAX_CLOCK_SKEW_SECONDS {
            let direction = if skew > 0 { "ahead of" } else { "behind" };
            problems.push(format!(
                "the clock of this machine is {} s {direction} the server's, and at most \
                 {MAX_CLOCK_SKEW_SECONDS} s are allowed: synchronize it, for example with \
                 `timedatectl set-ntp true`",
                skew.abs()
            ));
        }
    }
    match &facts.server_version {
        None => problems.push("the server is not a Sheaf server: check the URL of --join".into()),
        Some(server) if series(server) != series(&facts.own_version) => problems.push(format!(
            "this machine has Sheaf {}, and the server has {server}: install {server} here",
            facts.own_version
        )),
        Some(_) => {}
    }
    let clock = facts.server_time.unwrap_or(facts.now);
    let is_expired = facts.token_expires.is_some_and(|end| end <= clock);
    if let Some(end) = facts.token_expires.filter(|_| is_expired) {
        problems.push(format!(
            "the token {} expired at {end}: create another with `sheaf token create` on the \
             management node",
            facts.token_id
        ));
    }
    match facts.name {
        NameState::Unknown if !is_expired => problems.push(format!(
            "the server does not accept the token {}: it was revoked; create another with \
             `sheaf token create` on the management node",
            facts.token_id
        )),
        NameState::Taken => problems.push(format!(
            "another machine is the node {:?}: choose another name with --node-name, or, if this \
             machine replaces it, run `sheaf node remove {}` on the management node first",
            facts.node, facts.node
        )),
        NameState::Unknown | NameState::Free | NameState::Own => {}
    }
    problems
}

/// Versions of one series work together: the same first two numbers.
fn series(version: &str) -> (&str, &str) {
    let mut parts = version.split(['.', '-', '+']);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Sheaf's version in the version of the API that a server reports.
pub(super) fn sheaf_version(git_version: &str) -> Option<&str> {
    git_version.split_once("+sheaf-").map(|(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn good() -> JoinFacts {
        JoinFacts {
            node: "n2".into(),
            now: at("2026-06-01T12:00:00Z"),
            server_time: Some(at("2026-06-01T12:00:20Z")),
            own_version: "0.3.1".into(),
            server_version: Some("0.3.0".into()),
            token_id: "abcdef".into(),
            token_expires: Some(at("2026-06-02T00:00:00Z")),
            name: NameState::Free,
        }
    }

    #[test]
    fn a_machine_that_fits_may_join() {
        assert_eq!(problems(&good()), Vec::<String>::new());
        let own = JoinFacts { name: NameState::Own, token_expires: None, ..good() };
        assert_eq!(problems(&own), Vec::<String>::new());
    }

    #[test]
    fn each_problem_names_its_remedy() {
        let ahead = Some(at("2026-06-01T11:00:00Z"));
        let over = Some(at("2026-06-01T12:00:20Z"));
        for (facts, part) in [
            (JoinFacts { server_time: ahead, ..good() }, "3600 s ahead of the server's"),
            (JoinFacts { server_time: Some(at("2026-06-01T12:01:00Z")), ..good() }, "60 s behind"),
            (JoinFacts { server_version: None, ..good() }, "check the URL of --join"),
            (JoinFacts { server_version: Some("0.4.0".into()), ..good() }, "install 0.4.0 here"),
            (JoinFacts { token_expires: over, ..good() }, "expired at 2026-06-01T12:00:20Z"),
            (JoinFacts { name: NameState::Unknown, ..good() }, "it was revoked"),
            (JoinFacts { name: NameState::Taken, ..good() }, "sheaf node remove n2"),
        ] {
            let problems = problems(&facts);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(part), "{problems:?}");
        }
    }

    #[test]
    fn all_problems_are_reported_together() {
        let facts = JoinFacts {
            server_time: Some(at("2026-06-03T12:00:00Z")),
            name: NameState::Unknown,
            server_version: Some("1.0.0".into()),
            ..good()
        };
        // An expired token is not accepted; once is enough to say so.
        assert_eq!(problems(&facts).len(), 3);
    }

    #[test]
    fn the_version_of_sheaf_is_in_the_version_of_the_api() {
        assert_eq!(sheaf_version("v1.37.0+sheaf-0.3.1"), Some("0.3.1"));
        assert_eq!(sheaf_version("v1.37.0+k3s1"), None);
    }
}
