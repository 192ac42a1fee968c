//! Values of the flags of `sheaf server`: addresses, names of certificates, directories.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agent::IpNet;
use apiserver::Cidr;

use super::value::object_name;

/// The longest DNS name.
const MAX_DNS_NAME: usize = 253;
const MAX_DNS_LABEL: usize = 63;

/// An address of this machine and a port.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || "expected IP:PORT, for example 0.0.0.0:6443 or [::]:6443".to_owned();
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    if address.ip().is_multicast() { Err(wrong()) } else { Ok(address) }
}

/// An address that others connect to.
pub(crate) fn advertised_address(text: &str) -> Result<IpAddr, String> {
    let wrong = || {
        "expected the address of one machine, for example 10.0.0.1; 0.0.0.0, multicast and \
         broadcast addresses are none"
            .to_owned()
    };
    let address: IpAddr = text.parse().map_err(|_| wrong())?;
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(wrong());
    }
    Ok(address)
}

/// A name or an address in a serving certificate.
pub(crate) fn certificate_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let name = name.strip_prefix("*.").unwrap_or(&name);
    let fits = name.len() <= MAX_DNS_NAME && name.split('.').all(|own| own.len() <= MAX_DNS_LABEL);
    if text.parse::<IpAddr>().is_ok() || fits && object_name(name).is_ok() {
        return Ok(text.to_owned());
    }
    Err("expected host names or addresses, separated by commas, for example \
         sheaf.example.org,10.0.0.1; names have letters, digits, '-' and '.'"
        .to_owned())
}

/// The addresses of services.
pub(crate) fn service_range(text: &str) -> Result<String, String> {
    let range: Cidr = text.parse().map_err(|error| format!("{error}"))?;
    let IpAddr::V4(first) = range.first() else { return Ok(text.to_owned()) };
    let is_reserved = first.octets()[0] == 0 || first.octets()[0] >= 240;
    if first.is_loopback() || first.is_link_local() || first.is_multicast() || is_reserved {
        return Err(
            "expected a range that is not loopback, link-local, multicast or reserved, for \
                    example 10.53.0.0/16"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A range of addresses.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| "expected a network, for example 127.0.0.0/8".to_owned())
}

/// A directory of this node. Whether it exists is checked when the server starts.
pub(crate) fn host_directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err("expected an absolute path of a directory, for example /srv/disks".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_is_expected() {
        for good in ["127.0.0.1:0", "0.0.0.0:6443", "[::]:6443"] {
            assert!(listen_address(good).is_ok(), "{good}");
        }
        for bad in ["", "banana", "6443", "localhost:6443", "127.0.0.1:99999", "224.0.0.1:6443"] {
            assert!(listen_address(bad).unwrap_err().contains("0.0.0.0:6443"), "{bad}");
        }
        for good in ["10.0.0.1", "127.0.0.1", "fd00::1"] {
            assert!(advertised_address(good).is_ok(), "{good}");
        }
        for bad in ["", "node1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "10.0.0.1:6443"] {
            assert!(advertised_address(bad).unwrap_err().contains("10.0.0.1"), "{bad}");
        }
        assert!(network("127.0.0.0/8").is_ok());
        for bad in ["", "banana", "10.0.0.0/99"] {
            assert!(network(bad).unwrap_err().contains("127.0.0.0/8"), "{bad}");
        }
    }

    #[test]
    fn names_of_certificates_are_host_names_or_addresses() {
        for good in ["sheaf", "Sheaf.Example.org", "*.example.org", "10.0.0.1", "fd00::1"] {
            assert_eq!(certificate_name(good).as_deref(), Ok(good));
        }
        let long = "a".repeat(64);
        for bad in ["", "a b", "a..b", "-a", "*", "*.*.b", "ü", "a/b", "https://a", &long] {
            assert!(certificate_name(bad).unwrap_err().contains("sheaf.example.org"), "{bad:?}");
        }
    }

    #[test]
    fn services_have_addresses_that_can_be_routed() {
        for good in ["10.53.0.0/16", "10.53.0.5/16", "172.16.0.0/28"] {
            assert_eq!(service_range(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "banana",
            "10.0.0.0",
            "10.0.0.0/32",
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "224.0.0.0/8",
            "240.0.0.0/8",
            "fd00::/112",
        ] {
            assert!(service_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn directories_of_host_disks_are_absolute() {
        assert_eq!(host_directory("/srv/disks"), Ok("/srv/disks".into()));
        for bad in ["", "disks", "./disks", "~/disks"] {
            assert!(host_directory(bad).unwrap_err().contains("/srv/disks"), "{bad}");
        }
    }
}
