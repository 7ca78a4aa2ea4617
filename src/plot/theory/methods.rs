//! The scaling methods side by side.

use crate::rope::{Frequencies, Llama3, Magnitude, Ramp, RopeError, RopeSpec, Scaling, Yarn, frequencies};

/// Methods that have the same table, and it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Their names, joined by commas.
    pub name: String,
    pub frequencies: Frequencies,
}

/// Every method that needs nothing but a factor, at `factor` over the original context of `spec`; and the scaling of
/// `spec` itself when it is a further one. Length-dependent methods are taken at the end of the stretched context, where
/// they equal their static sisters. Methods with equal tables share an entry.
///
/// # Errors
/// The [`RopeError`] of the first method that cannot be computed.
pub fn compared(spec: &RopeSpec, factor: f64) -> Result<Vec<Compared>, RopeError> {
    let yarn = Yarn { factor, ramp: Ramp::default(), magnitude: Magnitude::Default };
    let mut scalings = vec![
        Scaling::None,
        Scaling::Linear { factor },
        Scaling::DynamicLinear,
        Scaling::Ntk { factor },
        Scaling::DynamicNtk { factor: 1.0 },
        Scaling::NtkByParts { factor, ramp: Ramp::default() },
        Scaling::Yarn(yarn.clone()),
        Scaling::DynamicYarn(yarn),
        Scaling::Llama3(Llama3 { factor, low_freq_factor: 1.0, high_freq_factor: 4.0 }),
    ];
    if !scalings.contains(&spec.scaling) {
        scalings.push(spec.scaling.clone());
    }
    let length = (spec.original_context as f64 * factor).round() as usize;
    let mut groups: Vec<Compared> = Vec::new();
    for scaling in scalings {
        let name = scaling.name();
        let found = frequencies(&RopeSpec { scaling, ..spec.clone() }, length)?;
        match groups.iter_mut().find(|group| equal(&group.frequencies, &found)) {
            Some(group) => group.name = format!("{}, {name}", group.name),
            None => groups.push(Compared { name: name.to_string(), frequencies: found }),
        }
    }
    Ok(groups)
}

/// Equal but for rounding.
fn equal(a: &Frequencies, b: &Frequencies) -> bool {
    const ROUNDING: f64 = 1e-12;
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    near(a.attention_factor, b.attention_factor)
        && a.inv_freq.iter().zip(&b.inv_freq).all(|(a, b)| near(*a, *b))
}
