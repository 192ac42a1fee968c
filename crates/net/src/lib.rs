//! Networks of a node: bridges, taps, addresses, NAT, DHCP and DNS for guests.
//!
//! Knows nothing of Kubernetes; the agent translates objects into its types.
