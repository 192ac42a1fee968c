//! Numbered places for things in flight. A number that was given back is not mistaken for the
//! thing that took its place.

/// Names a thing in a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    life: u32,
}

impl Key {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_u64(number: u64) -> Self {
        Self { index: number as u32, life: (number >> 32) as u32 }
    }
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("less than 2^32 things are in flight")
        });
        let place = &mut self.places[index as usize];
        place.1 = Some(value);
        Key { index, life: place.0 }
    }

    /// Takes a thing out for a while; its key stays taken. Either [`Self::give_back`] or
    /// [`Self::free`] follows.
    pub(crate) fn lend(&mut self, key: Key) -> Option<T> {
        match self.places.get_mut(key.index as usize) {
            Some((life, value)) if *life == key.life => value.take(),
            _ => None,
        }
    }

    pub(crate) fn give_back(&mut self, key: Key, value: T) {
        let place = &mut self.places[key.index as usize];
        debug_assert!(place.0 == key.life && place.1.is_none());
        place.1 = Some(value);
    }

    /// The thing that was lent does not come back.
    pub(crate) fn free(&mut self, key: Key) {
        let place = &mut self.places[key.index as usize];
        debug_assert!(place.0 == key.life && place.1.is_none());
        place.0 = place.0.wrapping_add(1);
        self.free.push(key.index);
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        match self.places.get_mut(key.index as usize) {
            Some((life, value)) if *life == key.life => {
                let value = value.take()?;
                *life = life.wrapping_add(1);
                self.free.push(key.index);
                Some(value)
            }
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes everything out, in the order of the places.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let keys: Vec<Key> = (0u32..)
            .zip(&self.places)
            .filter(|(_, (_, value))| value.is_some())
            .map(|(index, (life, _))| Key { index, life: *life })
            .collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_thing_only() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(Key::from_u64(first.to_u64()), first);
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_ne!(first, second);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.lend(second), Some('b'));
        slab.give_back(second, 'b');
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.drain(), ['b']);
    }
}
