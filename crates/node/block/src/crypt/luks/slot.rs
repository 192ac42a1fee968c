//! Key slots: the volume key, locked by a passphrase.
//!
//! ```text
//! passphrase ─ Argon2 or PBKDF2 ─► key of the slot
//! volume key ─ split into 4000 stripes ─ AES-XTS with that key, sectors of 512 ─► the slot's area
//! ```

use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::{digest, pbkdf2};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::header::Header;
use super::{HeaderDisk, LuksError, VolumeKey, random};
use crate::crypt::xts::Xts;
use crate::crypt::{HEADER, KEY, Passphrase};

const STRIPES: usize = 4000;
/// Bytes of a slot's area.
const AREA: u64 = ((KEY * STRIPES) as u64).next_multiple_of(4096);
/// More are not possible in the format.
const MAX_SLOTS: usize = 32;
/// A header must not take the node's memory, nor all day.
const MAX_MEMORY: u32 = 4 << 20;
const MAX_ROUNDS: u32 = 1 << 28;

/// How hard a passphrase is to guess; and how long an unlock takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// KiB that one guess needs.
    pub memory: u32,
    /// Passes over that memory.
    pub time: u32,
}

impl Default for Cost {
    /// A quarter of a second or so. `cryptsetup` takes up to 1 GiB, which a node with twenty
    /// volumes to open after a power cut does not have to spare.
    fn default() -> Self {
        Self { memory: 128 << 10, time: 4 }
    }
}

#[derive(Deserialize)]
struct Slot {
    r#type: String,
    key_size: usize,
    af: Stripes,
    area: Area,
    kdf: Value,
}

#[derive(Deserialize)]
struct Stripes {
    r#type: String,
    stripes: usize,
    hash: String,
}

#[derive(Deserialize)]
struct Area {
    r#type: String,
    offset: String,
    size: String,
    encryption: String,
    key_size: usize,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Kdf {
    Argon2i { time: u32, memory: u32, cpus: u32, salt: String },
    Argon2id { time: u32, memory: u32, cpus: u32, salt: String },
    Pbkdf2 { hash: String, iterations: u32, salt: String },
}

/// Finds the slot that a passphrase opens, and what is in it.
pub(super) fn open(
    disk: &mut dyn HeaderDisk,
    header: &Header,
    passphrase: &Passphrase,
) -> Result<(String, VolumeKey), LuksError> {
    let mut failed = None;
    for (number, value) in header.keyslots()? {
        match try_slot(disk, header, value, passphrase) {
            Ok(Some(key)) => return Ok((number.clone(), key)),
            Ok(None) => {}
            // Another slot may still be one that we know.
            Err(error @ LuksError::Unsupported { .. }) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or(LuksError::WrongPassphrase))
}

fn try_slot(
    disk: &mut dyn HeaderDisk,
    header: &Header,
    value: &Value,
    passphrase: &Passphrase,
) -> Result<Option<VolumeKey>, LuksError> {
    let unsupported = |what, found: &str| LuksError::Unsupported { what, found: found.to_owned() };
    let slot = Slot::deserialize(value).map_err(|_| LuksError::Damaged)?;
    let Slot { area, af, .. } = &slot;
    if slot.r#type != "luks2" || area.r#type != "raw" || af.r#type != "luks1" {
        return Err(unsupported("key slot", &slot.r#type));
    }
    if slot.key_size != KEY || area.key_size != KEY {
        return Err(unsupported("key size", &slot.key_size.to_string()));
    }
    if area.encryption != "aes-xts-plain64" {
        return Err(unsupported("encryption of a key slot", &area.encryption));
    }
    if af.stripes != STRIPES {
        return Err(unsupported("number of stripes", &af.stripes.to_string()));
    }
    let hash = hash(&af.hash)?;
    let (offset, size) = extent(area)?;
    if size < AREA || offset < header.end() || offset % 4096 != 0 {
        return Err(LuksError::Damaged);
    }
    let key = derive(&slot.kdf, passphrase)?;
    let mut stripes = Zeroizing::new(disk.read(offset, AREA as usize)?);
    let xts = Xts::new(&key);
    for (sector, bytes) in (0..).zip(stripes.chunks_exact_mut(512)) {
        xts.decrypt(sector, bytes);
    }
    let candidate = merge(&stripes[..KEY * STRIPES], hash);
    Ok(is_volume_key(header, &candidate)?.then_some(candidate))
}

/// Puts the volume key into a new slot. The header is written by the caller.
pub(super) fn add(
    disk: &mut dyn HeaderDisk,
    header: &mut Header,
    key: &VolumeKey,
    passphrase: &Passphrase,
    cost: Cost,
) -> Result<(), LuksError> {
    if passphrase.bytes().is_empty() {
        return Err(LuksError::Empty);
    }
    let (number, offset) = free_place(header)?;
    let mut salt = [0; 32];
    random(&mut salt);
    let kdf = json!({
        "type": "argon2id",
        "time": cost.time,
        "memory": cost.memory,
        "cpus": 1,
        "salt": BASE64_STANDARD.encode(salt),
    });
    let slot_key = derive(&kdf, passphrase)?;
    let mut area = Zeroizing::new(vec![0; AREA as usize]);
    split(key, &mut area[..KEY * STRIPES], &digest::SHA256);
    let xts = Xts::new(&slot_key);
    for (sector, bytes) in (0..).zip(area.chunks_exact_mut(512)) {
        xts.encrypt(sector, bytes);
    }
    disk.write(offset, &area)?;
    disk.flush()?;
    let slot = json!({
        "type": "luks2",
        "key_size": KEY,
        "af": { "type": "luks1", "stripes": STRIPES, "hash": "sha256" },
        "area": {
            "type": "raw",
            "offset": offset.to_string(),
            "size": AREA.to_string(),
            "encryption": "aes-xts-plain64",
            "key_size": KEY,
        },
        "kdf": kdf,
    });
    header.keyslots_mut()?.insert(number.clone(), slot);
    header.name_keyslots(|slots| slots.push(number.into())).ok_or(LuksError::Damaged)
}

/// Makes a slot unreadable and forgets it. The header is written by the caller.
pub(super) fn remove(
    disk: &mut dyn HeaderDisk,
    header: &mut Header,
    number: &str,
) -> Result<(), LuksError> {
    let value = header.keyslots()?.get(number).ok_or(LuksError::Damaged)?;
    let slot = Slot::deserialize(value).map_err(|_| LuksError::Damaged)?;
    let (offset, _) = extent(&slot.area)?;
    let mut noise = vec![0; AREA as usize];
    random(&mut noise);
    disk.write(offset, &noise)?;
    disk.flush()?;
    header.keyslots_mut()?.remove(number);
    let gone = |slots: &mut Vec<Value>| slots.retain(|slot| slot.as_str() != Some(number));
    header.name_keyslots(gone).ok_or(LuksError::Damaged)
}

/// A number and a place that no slot has.
fn free_place(header: &Header) -> Result<(String, u64), LuksError> {
    let slots = header.keyslots()?;
    let number = (0..MAX_SLOTS).map(|number| number.to_string());
    let number = number.into_iter().find(|number| !slots.contains_key(number));
    let mut taken = Vec::new();
    for value in slots.values() {
        let area = value.get("area").ok_or(LuksError::Damaged)?;
        let area = Area::deserialize(area).map_err(|_| LuksError::Damaged)?;
        taken.push(extent(&area)?);
    }
    let mut places = (header.end()..).step_by(AREA as usize).take_while(|at| at + AREA <= HEADER);
    let free =
        |at: &u64| taken.iter().all(|(start, size)| at + AREA <= *start || start + size <= *at);
    number.zip(places.find(free)).ok_or(LuksError::Full)
}

fn extent(area: &Area) -> Result<(u64, u64), LuksError> {
    let (Ok(offset), Ok(size)) = (area.offset.parse::<u64>(), area.size.parse::<u64>()) else {
        return Err(LuksError::Damaged);
    };
    match offset.checked_add(size).is_some_and(|end| end <= HEADER) {
        true => Ok((offset, size)),
        false => Err(LuksError::Damaged),
    }
}

fn derive(kdf: &Value, passphrase: &Passphrase) -> Result<VolumeKey, LuksError> {
    let mut key: VolumeKey = Zeroizing::new([0; KEY]);
    let decode = |salt: &str| BASE64_STANDARD.decode(salt).map_err(|_| LuksError::Damaged);
    let (algorithm, time, memory, cpus, salt) = match Kdf::deserialize(kdf) {
        Ok(Kdf::Argon2i { time, memory, cpus, salt }) => {
            (Algorithm::Argon2i, time, memory, cpus, salt)
        }
        Ok(Kdf::Argon2id { time, memory, cpus, salt }) => {
            (Algorithm::Argon2id, time, memory, cpus, salt)
        }
        Ok(Kdf::Pbkdf2 { hash, iterations, salt }) => {
            let salt = decode(&salt)?;
            rounds(&hash, iterations, &salt, passphrase.bytes(), &mut key[..])?;
            return Ok(key);
        }
        Err(_) => {
            let found = kdf.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
            return Err(LuksError::Unsupported { what: "key derivation", found });
        }
    };
    if memory > MAX_MEMORY || time > MAX_ROUNDS {
        let found = format!("{memory} KiB, {time} passes");
        return Err(LuksError::Unsupported { what: "cost of a key derivation", found });
    }
    let params = Params::new(memory, time, cpus, Some(KEY)).map_err(|_| LuksError::Damaged)?;
    let argon = Argon2::new(algorithm, Version::V0x13, params);
    argon
        .hash_password_into(passphrase.bytes(), &decode(&salt)?, &mut key[..])
        .map_err(|_| LuksError::Damaged)?;
    Ok(key)
}

fn rounds(
    hash: &str,
    iterations: u32,
    salt: &[u8],
    secret: &[u8],
    out: &mut [u8],
) -> Result<(), LuksError> {
    let algorithm = match hash {
        "sha1" => pbkdf2::PBKDF2_HMAC_SHA1,
        "sha256" => pbkdf2::PBKDF2_HMAC_SHA256,
        "sha512" => pbkdf2::PBKDF2_HMAC_SHA512,
        other => return Err(LuksError::Unsupported { what: "hash", found: other.to_owned() }),
    };
    let iterations = NonZeroU32::new(iterations).filter(|count| count.get() <= MAX_ROUNDS);
    let iterations = iterations.ok_or(LuksError::Damaged)?;
    pbkdf2::derive(algorithm, iterations, salt, secret, out);
    Ok(())
}

/// A digest of a volume key and its salt, both as text.
pub(super) fn new_digest(key: &VolumeKey, iterations: u32) -> (String, String) {
    let (mut salt, mut digest) = ([0; 32], [0; 32]);
    random(&mut salt);
    rounds("sha256", iterations, &salt, &key[..], &mut digest).expect("the hash is known");
    (BASE64_STANDARD.encode(digest), BASE64_STANDARD.encode(salt))
}

fn is_volume_key(header: &Header, key: &VolumeKey) -> Result<bool, LuksError> {
    #[derive(Deserialize)]
    struct Digest {
        hash: String,
        iterations: u32,
        salt: String,
        digest: String,
    }
    let digest = Digest::deserialize(header.digest()?).map_err(|_| LuksError::Damaged)?;
    let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| LuksError::Damaged);
    let expected = decode(&digest.digest)?;
    if !(16..=64).contains(&expected.len()) {
        return Err(LuksError::Damaged);
    }
    let mut found = vec![0; expected.len()];
    rounds(&digest.hash, digest.iterations, &decode(&digest.salt)?, &key[..], &mut found)?;
    Ok(aws_lc_rs::constant_time::verify_slices_are_equal(&found, &expected).is_ok())
}

fn hash(name: &str) -> Result<&'static digest::Algorithm, LuksError> {
    match name {
        "sha1" => Ok(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256" => Ok(&digest::SHA256),
        "sha512" => Ok(&digest::SHA512),
        other => Err(LuksError::Unsupported { what: "hash", found: other.to_owned() }),
    }
}

/// Spreads a key: every bit of the result is needed to get it back.
fn split(key: &VolumeKey, stripes: &mut [u8], hash: &'static digest::Algorithm) {
    let mut carried: VolumeKey = Zeroizing::new([0; KEY]);
    let (noise, last) = stripes.split_at_mut(KEY * (STRIPES - 1));
    random(noise);
    for stripe in noise.chunks_exact(KEY) {
        xor(&mut carried[..], stripe);
        diffuse(&mut carried[..], hash);
    }
    last.copy_from_slice(&carried[..]);
    xor(last, &key[..]);
}

fn merge(stripes: &[u8], hash: &'static digest::Algorithm) -> VolumeKey {
    let mut carried: VolumeKey = Zeroizing::new([0; KEY]);
    let (noise, last) = stripes.split_at(KEY * (STRIPES - 1));
    for stripe in noise.chunks_exact(KEY) {
        xor(&mut carried[..], stripe);
        diffuse(&mut carried[..], hash);
    }
    xor(&mut carried[..], last);
    carried
}

fn xor(into: &mut [u8], with: &[u8]) {
    into.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

/// Each piece as long as the hash becomes the hash of its number and itself.
fn diffuse(bytes: &mut [u8], hash: &'static digest::Algorithm) {
    for (number, piece) in (0u32..).zip(bytes.chunks_mut(hash.output_len())) {
        let mut context = digest::Context::new(hash);
        context.update(&number.to_be_bytes());
        context.update(piece);
        let sum = context.finish();
        piece.copy_from_slice(&sum.as_ref()[..piece.len()]);
    }
}
