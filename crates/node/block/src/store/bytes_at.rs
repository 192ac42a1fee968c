//! Little-endian numbers at fixed places in a page.

macro_rules! number {
    ($type:ty, $get:ident, $put:ident) => {
        pub(crate) fn $get(page: &[u8], at: usize) -> $type {
            let bytes = &page[at..at + size_of::<$type>()];
            <$type>::from_le_bytes(bytes.try_into().expect("the slice has the size of the number"))
        }

        pub(crate) fn $put(page: &mut [u8], at: usize, value: $type) {
            page[at..at + size_of::<$type>()].copy_from_slice(&value.to_le_bytes());
        }
    };
}

number!(u16, get_u16, put_u16);
number!(u32, get_u32, put_u32);
number!(u64, get_u64, put_u64);
number!(u128, get_u128, put_u128);
