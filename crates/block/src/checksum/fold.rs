//! CRC-32C by carry-less multiplication in registers of 64 bytes: a quarter of the time that the
//! instruction for the sum itself needs, which takes eight bytes at a time.
//!
//! A checksum is the remainder of the data, taken as a polynomial, divided by another one. So
//! data may be replaced by shorter data with the same remainder. What is sixteen bytes wide and `n`
//! bits in front of the end is multiplied by the remainder of `x^n`, half by half, and added to
//! the sixteen bytes at the end:
//!
//! ```text
//!  256 bytes ─┐ fold
//!             ▼
//!  256 bytes ─► 256 bytes ─ … ─► 256 ─► 64 ─► 16 bytes ─► the instruction, for the last steps
//! ```
//!
//! Bits are in the order of the instruction, lowest first, which is what shifts the constants by
//! one and why the low half is the one in front.

#![expect(unsafe_code, reason = "the wide registers, where the processor was found to have them")]

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm512_broadcast_i32x4,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

/// Bytes of a register, and of those that are worked on at once.
const WIDE: usize = 64;
const STRIDE: usize = 4 * WIDE;

/// The sum, if this processor can do it this way and it is worth it.
pub(super) fn crc32c(data: &[u8]) -> Option<u32> {
    let able = data.len() >= STRIDE
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2");
    if !able {
        return None;
    }
    let (strides, rest) = data.as_chunks::<STRIDE>();
    // SAFETY: the processor has what the function is compiled for.
    let crc = unsafe { sum(strides) };
    Some(crc32c::crc32c_append(crc, rest))
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn sum(strides: &[[u8; STRIDE]]) -> u32 {
    let Some((first, rest)) = strides.split_first() else { return 0 };
    let mut sums = load(first);
    // The sum begins with all bits set.
    let begin = _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1));
    sums[0] = _mm512_xor_si512(sums[0], begin);
    let far = _mm512_broadcast_i32x4(factors::<STRIDE>());
    for stride in rest {
        let next = load(stride);
        for at in 0..4 {
            sums[at] = fold(sums[at], far, next[at]);
        }
    }
    let near = _mm512_broadcast_i32x4(factors::<WIDE>());
    let mut wide = sums[0];
    for next in &sums[1..] {
        wide = fold(wide, near, *next);
    }
    !finish(wide)
}

/// Written without closures, which would not be compiled for these registers.
#[target_feature(enable = "avx512f")]
fn load(stride: &[u8; STRIDE]) -> [__m512i; 4] {
    let at = stride.as_ptr();
    // SAFETY: the four registers together are as long as the array; it may be anywhere in memory.
    unsafe {
        [
            _mm512_loadu_si512(at.cast()),
            _mm512_loadu_si512(at.add(WIDE).cast()),
            _mm512_loadu_si512(at.add(2 * WIDE).cast()),
            _mm512_loadu_si512(at.add(3 * WIDE).cast()),
        ]
    }
}

/// Each sixteen bytes of `sum`, moved to those of `next`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let front = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
    let back = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(front, back, next)
}

/// The remainder of 64 bytes.
#[target_feature(enable = "avx512f,pclmulqdq,sse4.2")]
fn finish(wide: __m512i) -> u32 {
    let factors = factors::<16>();
    let mut sum = _mm512_extracti32x4_epi32::<0>(wide);
    for next in [
        _mm512_extracti32x4_epi32::<1>(wide),
        _mm512_extracti32x4_epi32::<2>(wide),
        _mm512_extracti32x4_epi32::<3>(wide),
    ] {
        let front = _mm_clmulepi64_si128::<0x00>(sum, factors);
        let back = _mm_clmulepi64_si128::<0x11>(sum, factors);
        sum = _mm_xor_si128(_mm_xor_si128(front, back), next);
    }
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64);
    _mm_crc32_u64(crc, _mm_extract_epi64::<1>(sum) as u64) as u32
}

/// What moves sixteen bytes by so many.
#[target_feature(enable = "sse2")]
fn factors<const BYTES: usize>() -> __m128i {
    let (front, back) = const { (power(8 * BYTES + 32) << 1, power(8 * BYTES - 32) << 1) };
    _mm_set_epi64x(back, front)
}

/// The remainder of `x^n`, lowest bit for the highest power.
const fn power(n: usize) -> i64 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut value = 1u32 << 31;
    let mut at = 0;
    while at < n {
        value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
        at += 1;
    }
    value as i64
}
