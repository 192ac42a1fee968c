//! A certificate authority with its past and its future: the one that signs, older
//! ones that are still trusted, and the one that will take over.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;

use super::issue::{self, Lifetime};
use super::pair::{Pair, certs_pem};
use super::renewal::{AuthorityStep, authority_step};
use super::serving::ServingNames;
use super::{CA_LIFETIME, CertificateFacts, PkiChange, PkiError, Reason, files};

/// The files and the name of a CA.
#[derive(Debug)]
pub(super) struct AuthorityFiles {
    file: &'static str,
    next_file: &'static str,
    /// The certificates alone, for others to read.
    public_file: &'static str,
    name: &'static str,
    /// Files that cannot exist before the authority does.
    witnesses: &'static [&'static str],
}

pub(super) const CLUSTER: AuthorityFiles = AuthorityFiles {
    file: "ca.pem",
    next_file: "ca-next.pem",
    public_file: "ca.crt",
    name: "sheaf-ca",
    witnesses: &["ca-next.pem", "serving.pem", "admin.pem"],
};

pub(super) const FRONT_PROXY: AuthorityFiles = AuthorityFiles {
    file: "front-proxy-ca.pem",
    next_file: "front-proxy-ca-next.pem",
    public_file: "front-proxy-ca.crt",
    name: "sheaf-front-proxy-ca",
    witnesses: &["front-proxy-ca-next.pem", "front-proxy-client.pem"],
};

pub(super) const ETCD: AuthorityFiles = AuthorityFiles {
    file: "etcd-ca.pem",
    next_file: "etcd-ca-next.pem",
    public_file: "etcd-ca.crt",
    name: "sheaf-etcd-ca",
    witnesses: &["etcd-ca-next.pem", "etcd.crt"],
};

#[derive(Debug)]
pub(super) struct Authority {
    place: &'static AuthorityFiles,
    /// Its first certificate signs; the others are older and only trusted.
    current: Pair,
    next: Option<Pair>,
}

impl Authority {
    pub(super) fn open(
        dir: &Path,
        place: &'static AuthorityFiles,
        now: Timestamp,
        changes: &mut Vec<PkiChange>,
    ) -> Result<Self, PkiError> {
        let read = |file: &str| -> Result<Option<Pair>, PkiError> {
            let path = dir.join(file);
            let Some(text) = files::read(&path)? else { return Ok(None) };
            Pair::parse(&text).map(Some).map_err(|source| PkiError::Pair { path, source })
        };
        let current = match read(place.file)? {
            Some(pair) => pair,
            None => {
                let ca = dir.join(place.file);
                let witness = place.witnesses.iter().map(|file| dir.join(file));
                if let Some(witness) = witness.into_iter().find(|path| path.exists()) {
                    return Err(PkiError::AuthorityLost { ca, witness });
                }
                let pair = generate(dir, place, now)?;
                files::write(&ca, &pair.to_pem())?;
                changes.push(PkiChange { file: place.file, reason: Reason::Created });
                pair
            }
        };
        // A crash between switching and removing leaves the successor behind.
        let next =
            read(place.next_file)?.filter(|next| next.facts().subject != current.facts().subject);
        let authority = Self { place, current, next };
        authority.publish(dir)?;
        Ok(authority)
    }

    /// Prepares or switches to a successor if it is time, and forgets expired ancestors.
    pub(super) fn advance(
        &mut self,
        dir: &Path,
        now: Timestamp,
        changes: &mut Vec<PkiChange>,
    ) -> Result<(), PkiError> {
        let facts = self.current.facts();
        match authority_step(facts.not_before, facts.not_after, self.next.is_some(), now) {
            AuthorityStep::Keep => {}
            AuthorityStep::Prepare => {
                let next = generate(dir, self.place, now)?;
                files::write(&dir.join(self.place.next_file), &next.to_pem())?;
                self.next = Some(next);
                let reason = Reason::AuthorityPrepared;
                changes.push(PkiChange { file: self.place.next_file, reason });
                // One that has expired is of no use while its successor waits.
                if self.current.facts().not_after <= now {
                    self.switch(dir, changes)?;
                }
            }
            AuthorityStep::Switch => self.switch(dir, changes)?,
        }
        self.prune(dir, now, changes)?;
        self.publish(dir)
    }

    fn switch(&mut self, dir: &Path, changes: &mut Vec<PkiChange>) -> Result<(), PkiError> {
        let Some(next) = &self.next else { return Ok(()) };
        let certs: Vec<_> = next.certs().iter().chain(self.current.certs()).cloned().collect();
        self.current = self.rewrite(dir, next, certs)?;
        self.next = None;
        files::remove(&dir.join(self.place.next_file))?;
        changes.push(PkiChange { file: self.place.file, reason: Reason::AuthoritySwitched });
        Ok(())
    }

    fn prune(
        &mut self,
        dir: &Path,
        now: Timestamp,
        changes: &mut Vec<PkiChange>,
    ) -> Result<(), PkiError> {
        let (own, older) = self.current.certs().split_at(1);
        let is_alive = |cert: &&CertificateDer<'_>| {
            CertificateFacts::of(cert).is_ok_and(|facts| now < facts.not_after)
        };
        let kept: Vec<_> = own.iter().chain(older.iter().filter(is_alive)).cloned().collect();
        if kept.len() < self.current.certs().len() {
            self.current = self.rewrite(dir, &self.current, kept)?;
            changes.push(PkiChange { file: self.place.file, reason: Reason::Pruned });
        }
        Ok(())
    }

    fn rewrite(
        &self,
        dir: &Path,
        pair: &Pair,
        certs: Vec<CertificateDer<'static>>,
    ) -> Result<Pair, PkiError> {
        let path = dir.join(self.place.file);
        let pair = pair.with_certs(certs);
        let pair = pair.map_err(|source| PkiError::Pair { path: path.clone(), source })?;
        files::write(&path, &pair.to_pem())?;
        Ok(pair)
    }

    /// Brings the public copy up to date.
    fn publish(&self, dir: &Path) -> Result<(), PkiError> {
        let path = dir.join(self.place.public_file);
        let text = self.trusted_pem();
        match files::read(&path)? {
            Some(old) if old == text => Ok(()),
            _ => files::write(&path, &text),
        }
    }

    pub(super) fn facts(&self) -> &CertificateFacts {
        self.current.facts()
    }

    /// Every certificate of this authority that is to be trusted, the signing one first.
    pub(super) fn trusted(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        let next = self.next.iter().flat_map(|next| next.certs());
        self.current.certs().iter().chain(next)
    }

    pub(super) fn trusted_pem(&self) -> String {
        certs_pem(self.trusted())
    }

    /// A client certificate with a key of its own.
    pub(super) fn client(
        &self,
        user: &str,
        groups: &[&str],
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certs = self.client_with(&key, user, groups, length, now)?;
        Pair::new(key, certs).map_err(|_| rcgen::Error::CouldNotParseCertificate)
    }

    /// A client certificate for an existing key.
    pub(super) fn client_with(
        &self,
        key: &KeyPair,
        user: &str,
        groups: &[&str],
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<CertificateDer<'static>>, rcgen::Error> {
        Ok(vec![issue::client(&self.issuer()?, key, user, groups, self.lifetime(length, now))?])
    }

    /// A serving certificate for `key`.
    pub(super) fn server(
        &self,
        key: &KeyPair,
        names: &ServingNames,
        length: SignedDuration,
        now: Timestamp,
    ) -> Result<Pair, rcgen::Error> {
        let cert = issue::server(&self.issuer()?, key, names.all(), self.lifetime(length, now))?;
        let key = KeyPair::try_from(key.serialized_der())?;
        Pair::new(key, vec![cert]).map_err(|_| rcgen::Error::CouldNotParseCertificate)
    }

    pub(super) fn issuer(&self) -> Result<Issuer<'static, &KeyPair>, rcgen::Error> {
        Issuer::from_ca_cert_der(&self.current.certs()[0], self.current.key())
    }

    pub(super) fn lifetime(&self, length: SignedDuration, now: Timestamp) -> Lifetime {
        Lifetime { now, length, limit: Some(self.facts().not_after) }
    }
}

fn generate(dir: &Path, place: &AuthorityFiles, now: Timestamp) -> Result<Pair, PkiError> {
    let failed = |source| PkiError::Issue { subject: place.name.to_owned(), source };
    let key = KeyPair::generate().map_err(failed)?;
    // Generations must differ by name: a certificate names its issuer, and one made
    // by the previous authority has to be distinguished from one made by this.
    let digest =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key.subject_public_key_info());
    let digits: String = digest.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{}-{digits}", place.name);
    let lifetime = Lifetime { now, length: CA_LIFETIME, limit: None };
    let cert = issue::authority(&key, &name, lifetime).map_err(failed)?;
    let path = dir.join(place.file);
    Pair::new(key, vec![cert]).map_err(|source| PkiError::Pair { path, source })
}
