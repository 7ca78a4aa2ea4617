//! 16-bit floats to f32, in a form that compilers vectorise.

/// The value of an IEEE half.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // The exponent's bias is 15 in the half and 127 in the float: multiply by 2^112, exact for subnormals too.
    let finite = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// The value of a bfloat16.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The smallest bfloat16 that is not below `x`, a finite number of at least zero; infinite when there is none.
#[inline(always)]
pub fn bf16_at_least(x: f32) -> u16 {
    ((x.to_bits() + 0xffff) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_converted_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{bits:04x}: {got} {expected}");
            let (got, expected) = (bf16_to_f32(bits), half::bf16::from_bits(bits).to_f32());
            assert!(got == expected || (got.is_nan() && expected.is_nan()), "{bits:04x}: {got} {expected}");
        }
    }

    #[test]
    fn rounding_up_to_bfloat16_is_tight() {
        for x in [0.0, 1.0, 1.0000001, 3.3e-7, 1e-42, 2.9e38] {
            let bits = bf16_at_least(x);
            assert!(bf16_to_f32(bits) >= x);
            assert!(bits == 0 || bf16_to_f32(bits - 1) < x);
        }
        assert_eq!(bf16_to_f32(bf16_at_least(f32::MAX)), f32::INFINITY);
    }
}
