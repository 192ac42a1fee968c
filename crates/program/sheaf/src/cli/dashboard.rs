//! Flags of the dashboard's listener.

use std::net::SocketAddr;
use std::str::FromStr;

/// The port of the dashboard unless another is chosen.
const PORT: u16 = 8443;

/// The value of `--dashboard-listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DashboardListen {
    Off,
    Address(SocketAddr),
}

impl FromStr for DashboardListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.parse().map_err(|_| {
            "an address with a port, such as 0.0.0.0:443, or \"off\", is expected".to_owned()
        })?;
        Ok(Self::Address(address))
    }
}

/// The address that is used if none is chosen. A server on a port that the system chooses is
/// one of several on this machine, and so is its dashboard.
pub(crate) fn default_address(listen: SocketAddr) -> SocketAddr {
    SocketAddr::new(listen.ip(), if listen.port() == 0 { 0 } else { PORT })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_served_beside_the_api() {
        for (listen, expected) in [
            ("127.0.0.1:6443", "127.0.0.1:8443"),
            ("0.0.0.0:6443", "0.0.0.0:8443"),
            ("[::1]:7000", "[::1]:8443"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert_eq!(default_address(listen.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn an_address_or_off() {
        assert_eq!("off".parse(), Ok(DashboardListen::Off));
        let all = "0.0.0.0:443".parse().unwrap();
        assert_eq!("0.0.0.0:443".parse(), Ok(DashboardListen::Address(all)));
        assert!("443".parse::<DashboardListen>().unwrap_err().contains("0.0.0.0:443"));
    }
}
