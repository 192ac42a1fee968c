//! Settings of Harvester that this process follows while it runs: the log level, and the
//! certificate, protocols and ciphers of the server.

use std::time::Duration;

use auth::pki::tls::Tls;
use base::{Chain, Tasks};
use futures_util::StreamExt as _;
use hci::cluster_setting::{TlsParameters, effective};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::Value;
use tracing::{info, warn};

use crate::logging::LogLevel;

const LOG_LEVEL: &str = "log-level";
const CERTIFICATES: &str = "ssl-certificates";
const TLS_PARAMETERS: &str = "ssl-parameters";
/// After a failure of the watch.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The parts of the server that the settings change.
pub(super) struct LiveSettings {
    pub(super) client: Client,
    pub(super) log: LogLevel,
    pub(super) tls: Tls,
}

impl LiveSettings {
    /// Follows the settings for as long as the server runs.
    pub(super) fn follow(self, tasks: &Tasks) {
        let mut stop = tasks.stop_signal();
        tasks.spawn("live settings", async move {
            tokio::select! {
                () = stop.requested() => {}
                () = self.run() => {}
            }
        });
    }

    async fn run(&self) {
        let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Setting");
        let resource = ApiResource::from_gvk_with_plural(&kind, "settings");
        let settings: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut events = std::pin::pin!(watcher::watcher(settings, watcher::Config::default()));
        loop {
            match events.next().await {
                Some(Ok(Event::Apply(setting) | Event::InitApply(setting))) => {
                    self.apply(&setting);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    warn!(error = %Chain(&error), "cannot watch settings");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                None => return,
            }
        }
    }

    fn apply(&self, setting: &DynamicObject) {
        let name = setting.metadata.name.as_deref().unwrap_or_default();
        let chosen = setting.data["value"].as_str().is_some_and(|value| !value.is_empty());
        let value = effective(name, Some(&setting.data));
        match name {
            LOG_LEVEL => self.log.set(chosen.then_some(value.as_str())),
            CERTIFICATES => match self.tls.choose(pair(&value).as_ref().map(borrow)) {
                Ok(()) if chosen => info!("serving certificate of setting ssl-certificates loaded"),
                Ok(()) => {}
                Err(error) => {
                    warn!(error = %Chain(&error), "setting ssl-certificates is not usable");
                }
            },
            TLS_PARAMETERS => {
                // The condition of the setting says that such a value has no effect.
                let offered = TlsParameters::parse(&value).unwrap_or_default();
                if let Err(error) = self.tls.restrict(&offered.protocols, &offered.ciphers) {
                    warn!(error = %Chain(&error), "setting ssl-parameters is not usable");
                }
            }
            _ => {}
        }
    }
}

fn borrow(pair: &(String, String)) -> (&str, &str) {
    (&pair.0, &pair.1)
}

/// The certificates and the key in a value, if it has both. A CA of its own follows the
/// certificate, so that clients get the whole chain.
fn pair(value: &str) -> Option<(String, String)> {
    let value: Value = serde_json::from_str(value).ok()?;
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    let (cert, key) = (text("publicCertificate"), text("privateKey"));
    let both = !cert.is_empty() && !key.is_empty();
    both.then(|| (format!("{}\n{}", cert.trim_end(), text("ca")), key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_its_key() {
        assert_eq!(pair("{}"), None);
        assert_eq!(pair(r#"{"publicCertificate":"c"}"#), None);
        let found = pair(r#"{"publicCertificate":"c\n","privateKey":"k","ca":"a"}"#);
        assert_eq!(found, Some(("c\na".to_owned(), "k".to_owned())));
    }

    #[test]
    fn every_protocol_and_cipher_of_the_setting_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let names = auth::pki::ServingNames::default();
        let (pki, _) = auth::pki::Pki::open(dir.path(), &names, base::clock::now()).unwrap();
        let all = TlsParameters::default();
        Tls::new(&pki).unwrap().restrict(&all.protocols, &all.ciphers).unwrap();
    }
}
