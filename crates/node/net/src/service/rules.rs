//! The nftables table that carries out services. Pure.
//!
//! ```text
//!   prerouting, output   DNAT of new connections: a verdict map finds the chain of the service,
//!                        which chooses an endpoint at random, or the one that the client had
//!   postrouting          a guest that reaches itself, and endpoints elsewhere, see the node's
//!                        address, since otherwise their answers would not pass through the node
//!   input, forward,      what is still addressed to a service is refused, or dropped where the
//!   output (filter)      policy allows endpoints of this node only and it has none
//! ```
//!
//! A client's choice is remembered in one set per endpoint. The table is therefore changed in place:
//! rules and fixed sets are emptied and written anew, while sets of endpoints that stay are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use super::{Endpoint, EndpointScope, Location, Service, hex, table};
use crate::rules::{DIGEST_CHAIN, set};
use crate::want::Bridge;

/// Says how the table is laid out. It must change with the definition of any set or base chain that
/// is kept, so that a table of another version is replaced as a whole.
const LAYOUT_CHAIN: &str = "layout_1";
/// Begins the names of the chains of services: all endpoints, those of this node, and the choice
/// between the two by source.
const PREFIXES: [&str; 3] = ["all_", "here_", "outside_"];
/// Begins the names of the chains of endpoints that clients stay with.
const ENDPOINT: &str = "endpoint_";
/// Begins the names of the sets of those clients.
const CLIENTS: &str = "clients_";
/// Sets and maps that are emptied before they are written again.
const SETS: [&str; 4] = ["cluster_addresses", "hairpin", "elsewhere", "host_tcp"];
const MAPS: [&str; 4] = ["services", "node_ports", "dropped", "closed_node_ports"];
/// As many clients as one endpoint remembers.
const MOST_CLIENTS: u32 = 65_535;

/// A transaction for nftables and its digest, which shows whether it has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRules {
    pub digest: String,
    pub text: String,
}

impl ServiceRules {
    /// The transaction that makes the table what `services` say. `seen` are the chains that the
    /// table has now; none when there is no table.
    pub(crate) fn new(
        bridge: &Bridge,
        services: &[Service],
        seen: Option<&BTreeSet<String>>,
    ) -> Self {
        let compiled = Compiled::new(bridge, services);
        let body = compiled.body(bridge);
        let digest = hex(&Sha256::digest(body.as_bytes())[..12]);
        let table = table(&bridge.table);
        let mut text = format!("add table inet {table}\n");
        match seen.filter(|chains| chains.contains(LAYOUT_CHAIN)) {
            Some(chains) => text += &compiled.empty(&table, chains),
            None => {
                let _ = writeln!(text, "delete table inet {table}");
            }
        }
        let _ = write!(
            text,
            "table inet {table} {{\n\
             \tchain {LAYOUT_CHAIN} {{\n\t}}\n\
             \tchain {DIGEST_CHAIN}{digest} {{\n\t}}\n\
             {body}}}\n"
        );
        Self { digest, text }
    }

    /// Whether a table with these chains is what the transaction would make.
    pub(crate) fn is_in_force(&self, chains: Option<&BTreeSet<String>>) -> bool {
        let stamp = format!("{DIGEST_CHAIN}{}", self.digest);
        chains.is_some_and(|chains| chains.contains(LAYOUT_CHAIN) && chains.contains(&stamp))
    }
}

/// The rules that depend on the services.
#[derive(Default)]
struct Compiled {
    network: Ipv4Net,
    /// Rules by the name of their chain.
    chains: BTreeMap<String, Vec<String>>,
    client_sets: BTreeSet<String>,
    cluster_addresses: BTreeSet<String>,
    hairpin: BTreeSet<String>,
    elsewhere: BTreeSet<String>,
    services: Vec<String>,
    node_ports: Vec<String>,
    dropped: Vec<String>,
    closed_node_ports: Vec<String>,
}

impl Compiled {
    fn new(bridge: &Bridge, services: &[Service]) -> Self {
        let mut all = Self { network: bridge.gateway.trunc(), ..Self::default() };
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for service in services {
            all.cluster_addresses.insert(service.address.to_string());
            for endpoint in &service.endpoints {
                let Endpoint { address, port, location } = endpoint;
                all.hairpin.insert(format!("{address} . {address}"));
                if *location == Location::Elsewhere {
                    all.elsewhere.insert(format!("{address} . {} . {port}", service.protocol));
                }
            }
            // The server gives out each address and port once; were one here twice, the whole
            // transaction would be refused.
            if addresses.insert((service.address, service.protocol, service.port)) {
                all.add_address(service);
            }
            for address in &service.external_addresses {
                if addresses.insert((*address, service.protocol, service.port)) {
                    all.add_external_address(service, *address);
                }
            }
            if let Some(port) = service.node_port
                && ports.insert((service.protocol, port))
            {
                all.add_node_port(service, port);
            }
        }
        all
    }

    fn add_address(&mut self, service: &Service) {
        let Service { address, protocol, port, .. } = service;
        let key = format!("{address} . {protocol} . {port}");
        match self.balance(service, service.internal) {
            Some(chain) => self.services.push(format!("{key} : goto {chain}")),
            None if service.endpoints.is_empty() => {}
            None => self.dropped.push(format!("{key} : drop")),
        }
    }

    /// Other ports of an external address are not ours: it may be the node's own.
    fn add_external_address(&mut self, service: &Service, address: Ipv4Addr) {
        let key = format!("{address} . {} . {}", service.protocol, service.port);
        match self.external_chain(service) {
            Some(chain) => self.services.push(format!("{key} : goto {chain}")),
            None => self.dropped.push(format!("{key} : goto refuse")),
        }
    }

    fn external_chain(&mut self, service: &Service) -> Option<String> {
        match service.external {
            EndpointScope::Cluster => self.balance(service, EndpointScope::Cluster),
            EndpointScope::Local => self.local_first(service),
        }
    }

    fn add_node_port(&mut self, service: &Service, port: u16) {
        let key = format!("{} . {port}", service.protocol);
        match self.external_chain(service) {
            Some(chain) => self.node_ports.push(format!("{key} : goto {chain}")),
            None => self.closed_node_ports.push(format!("{key} : goto refuse")),
        }
    }

    /// Guests and the node itself may use any endpoint; others are served by this node's, or not at
    /// all, so that endpoints see the addresses of their clients.
    fn local_first(&mut self, service: &Service) -> Option<String> {
        let all = self.balance(service, EndpointScope::Cluster)?;
        let outside = match self.balance(service, EndpointScope::Local) {
            Some(here) => format!("goto {here}"),
            None => "drop".to_owned(),
        };
        let chain = format!("{}{}", PREFIXES[2], service.key());
        let rules = vec![
            format!("ip saddr {} goto {all}", self.network),
            format!("fib saddr type local goto {all}"),
            format!("{outside} comment \"{}\"", service.comment()),
        ];
        self.chains.insert(chain.clone(), rules);
        Some(chain)
    }

    /// The chain that chooses an endpoint; nothing when there is none to choose.
    fn balance(&mut self, service: &Service, scope: EndpointScope) -> Option<String> {
        let endpoints = service.endpoints_in(scope);
        let prefix = if scope == EndpointScope::Cluster { PREFIXES[0] } else { PREFIXES[1] };
        let chain = format!("{prefix}{}", service.key());
        if endpoints.is_empty() || self.chains.contains_key(&chain) {
            return (!endpoints.is_empty()).then_some(chain);
        }
        let rules = match service.affinity {
            None => vec![choose(service, &endpoints)],
            Some(seconds) => self.choose_again(service, &endpoints, seconds),
        };
        self.chains.insert(chain.clone(), rules);
        Some(chain)
    }

    /// A client that an endpoint remembers goes there again.
    fn choose_again(
        &mut self,
        service: &Service,
        endpoints: &[&Endpoint],
        seconds: u32,
    ) -> Vec<String> {
        let mut rules = Vec::new();
        let mut verdicts = Vec::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            let key = service.endpoint_key(endpoint);
            let (chain, clients) = (format!("{ENDPOINT}{key}"), format!("{CLIENTS}{key}"));
            rules.push(format!("ip saddr @{clients} goto {chain}"));
            verdicts.push(format!("{index} : goto {chain}"));
            let remember = format!("update @{clients} {{ ip saddr timeout {seconds}s }}");
            self.chains.insert(chain, vec![remember, choose(service, &[endpoint])]);
            self.client_sets.insert(clients);
        }
        let count = endpoints.len();
        rules.push(format!("numgen random mod {count} vmap {{ {} }}", verdicts.join(", ")));
        rules
    }

    /// Everything within the table, in the order that nftables needs.
    fn body(&self, bridge: &Bridge) -> String {
        let key = "ipv4_addr . inet_proto . inet_service";
        let mut text = String::new();
        text += &set("cluster_addresses", "ipv4_addr", self.cluster_addresses.iter().cloned());
        text += &set("hairpin", "ipv4_addr . ipv4_addr", self.hairpin.iter().cloned());
        text += &set("elsewhere", key, self.elsewhere.iter().cloned());
        text += &set("host_tcp", "inet_service", bridge.host_tcp.iter().map(u16::to_string));
        text += &map("services", key, &self.services);
        text += &map("node_ports", "inet_proto . inet_service", &self.node_ports);
        text += &map("dropped", key, &self.dropped);
        text += &map("closed_node_ports", "inet_proto . inet_service", &self.closed_node_ports);
        for name in &self.client_sets {
            let _ = write!(
                text,
                "\tset {name} {{\n\t\ttype ipv4_addr\n\t\tsize {MOST_CLIENTS}\n\
                 \t\tflags dynamic,timeout\n\t}}\n"
            );
        }
        for (name, rules) in &self.chains {
            let _ = write!(text, "\tchain {name} {{\n\t\t{}\n\t}}\n", rules.join("\n\t\t"));
        }
        text + &fixed(bridge)
    }

    /// Takes everything out of a table with these chains but what clients chose.
    fn empty(&self, table: &str, seen: &BTreeSet<String>) -> String {
        let mut text = format!("flush table inet {table}\n");
        for name in SETS {
            let _ = writeln!(text, "flush set inet {table} {name}");
        }
        for name in MAPS {
            let _ = writeln!(text, "flush map inet {table} {name}");
        }
        let ours = |chain: &&String| {
            let mut prefixes = PREFIXES.iter().chain([&ENDPOINT, &DIGEST_CHAIN]);
            prefixes.any(|prefix| chain.starts_with(prefix)) && !self.chains.contains_key(*chain)
        };
        // Chains of services lead to those of endpoints, so these go last.
        let (endpoints, others): (Vec<_>, Vec<_>) =
            seen.iter().filter(ours).partition(|chain| chain.starts_with(ENDPOINT));
        for chain in others.into_iter().chain(endpoints) {
            let _ = writeln!(text, "delete chain inet {table} {chain}");
            if let Some(key) = chain.strip_prefix(ENDPOINT) {
                let _ = writeln!(text, "delete set inet {table} {CLIENTS}{key}");
            }
        }
        text
    }
}

/// The rule that sends a connection to one of the endpoints.
fn choose(service: &Service, endpoints: &[&Endpoint]) -> String {
    let (protocol, comment) = (service.protocol, service.comment());
    let target = match endpoints {
        [only] => format!("dnat ip to {}:{}", only.address, only.port),
        many => {
            let element = |(index, endpoint): (usize, &&Endpoint)| {
                format!("{index} : {} . {}", endpoint.address, endpoint.port)
            };
            let elements: Vec<_> = many.iter().enumerate().map(element).collect();
            let count = many.len();
            format!(
                "dnat ip addr . port to numgen random mod {count} map {{ {} }}",
                elements.join(", ")
            )
        }
    };
    format!("meta l4proto {protocol} {target} comment \"{comment}\"")
}

/// A named map to verdicts; an empty one matches nothing.
fn map(name: &str, key: &str, elements: &[String]) -> String {
    let elements = match elements {
        [] => String::new(),
        some => format!("\t\telements = {{ {} }}\n", some.join(", ")),
    };
    format!("\tmap {name} {{\n\t\ttype {key} : verdict\n{elements}\t}}\n")
}

/// The chains that every table has. Guests' connections to the node come in at `lo`, see `reroute`,
/// and are held to what they may reach at the bridge.
fn fixed(bridge: &Bridge) -> String {
    let network = bridge.gateway.trunc();
    let gateway = bridge.gateway.addr();
    format!(
        "\
\tchain dispatch {{
\t\tip daddr . meta l4proto . th dport vmap @services
\t\tip daddr 127.0.0.0/8 return
\t\tfib daddr type local meta l4proto . th dport vmap @node_ports
\t}}
\tchain prerouting {{
\t\ttype nat hook prerouting priority -105; policy accept;
\t\tgoto dispatch
\t}}
\tchain nat_output {{
\t\ttype nat hook output priority -105; policy accept;
\t\tgoto dispatch
\t}}
\tchain postrouting {{
\t\ttype nat hook postrouting priority 95; policy accept;
\t\tct status dnat ip saddr . ip daddr @hairpin masquerade
\t\tct status dnat ip saddr != {network} ip daddr . meta l4proto . th dport @elsewhere masquerade
\t}}
\tchain refuse {{
\t\tmeta l4proto tcp reject with tcp reset
\t\treject
\t}}
\tchain unserved {{
\t\tip daddr . meta l4proto . th dport vmap @dropped
\t\tip daddr @cluster_addresses goto refuse
\t\tct state new fib daddr type local meta l4proto . th dport vmap @closed_node_ports
\t}}
\tchain input {{
\t\ttype filter hook input priority -20; policy accept;
\t\tjump unserved
\t\tiifname \"lo\" ip saddr {network} ip saddr != {gateway} ct state new goto from_guest
\t}}
\tchain from_guest {{
\t\ttcp dport @host_tcp accept
\t\tip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 accept
\t\tmeta l4proto tcp reject with tcp reset
\t\tdrop
\t}}
\tchain forward {{
\t\ttype filter hook forward priority -20; policy accept;
\t\tgoto unserved
\t}}
\tchain output {{
\t\ttype filter hook output priority -20; policy accept;
\t\tgoto unserved
\t}}
"
    )
}
