//! What follows when flags replace a checkpoint's scaling.

use super::error::RopeConfigError;
use super::limit::believed;
use super::origin::Origin;
use super::{Origins, RopeDeclaration};
use crate::rope::{RopeError, Scaling};

/// `--original-context` as a number of tokens.
pub(super) fn checked_original(original: usize) -> Result<usize, RopeConfigError> {
    match original {
        0 => Err(RopeError::OriginalContext { method: "any scaling", min: 1, found: 0 }.into()),
        _ => believed("--original-context", original),
    }
}

/// Refuses to replace a rotation whose lanes no other method rotates.
pub(super) fn refuse_proportional(declared: &RopeDeclaration) -> Result<(), RopeConfigError> {
    match declared.scaling {
        Ok(Scaling::Proportional { rotated_pairs, .. }) if rotated_pairs < declared.pairs() => {
            Err(RopeConfigError::NotReplaceable { rotated: rotated_pairs, pairs: declared.pairs() })
        }
        _ => Ok(()),
    }
}

/// What a user should know once `flag` has put `scaling` in force; `origins` are those of the new settings.
pub(super) fn warnings(
    declared: &RopeDeclaration,
    origins: &Origins,
    scaling: &Scaling,
    flag: &str,
) -> Vec<String> {
    let mut warnings = declared.notes.clone();
    warnings.extend(replaced(declared, scaling, flag));
    let guessed = matches!(origins.get("original_context"), Some(Origin::Derived(_)));
    if guessed && matches!(declared.scaling, Ok(Scaling::Divisors(_))) {
        warnings.push(format!(
            "the file does not say for which context it was trained before its `rope_freqs.weight`; {} tokens are \
             taken, give `--original-context` if it was another (8192 for Llama 3)",
            declared.original_context
        ));
    }
    warnings
}

/// The sentence that something declared is replaced by `flag`; `None` when nothing is, or by its equal.
fn replaced(declared: &RopeDeclaration, scaling: &Scaling, flag: &str) -> Option<String> {
    match &declared.scaling {
        Ok(Scaling::None) => None,
        Ok(old) if old == scaling => None,
        Ok(old) => {
            let factor = old.factor().map_or_else(String::new, |factor| format!(" with factor {factor}"));
            Some(format!("the checkpoint's `{}` scaling{factor} is replaced by `{flag}`", old.name()))
        }
        Err(error) => {
            Some(format!("the checkpoint's scaling is replaced by `{flag}`; it cannot be used: {error}"))
        }
    }
}

/// The origins that belong to the checkpoint and not to its scaling.
pub(super) fn kept_origins(declared: &RopeDeclaration) -> Origins {
    let kept = ["theta", "local_theta", "rotary_dim", "pairing", "declared_context", "original_context"];
    declared.origins.iter().filter(|(name, _)| kept.contains(name)).map(|(n, o)| (*n, o.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::{Divisors, Pairing};

    #[test]
    fn an_unknown_context_before_scaling_is_pointed_out() {
        let divisors = Divisors { divisors: vec![1.0, 8.0], attention_factor: 1.0 };
        let mut declared = RopeDeclaration {
            theta: 5e5,
            local_theta: None,
            rotary_dim: 4,
            head_dim: 4,
            pairing: Pairing::Adjacent,
            declared_context: 131_072,
            original_context: 131_072,
            scaling: Ok(Scaling::Divisors(divisors.clone())),
            limit: 131_072,
            fine_tuned: None,
            origins: Origins::from([("original_context", Origin::derived("llama.context_length"))]),
            notes: Vec::new(),
            scaling_notes: vec!["falls away".to_owned()],
        };
        let linear = Scaling::Linear { factor: 2.0 };
        let found = warnings(&declared, &declared.origins, &linear, "--scaling linear");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "the checkpoint's `rope-freqs` scaling is replaced by `--scaling linear`");
        assert!(found[1].contains("131072 tokens are taken, give `--original-context`"));
        let given = Origins::from([("original_context", Origin::flag("--original-context"))]);
        assert_eq!(warnings(&declared, &given, &linear, "--scaling linear").len(), 1);
        declared.scaling = Ok(Scaling::None);
        assert!(warnings(&declared, &declared.origins, &linear, "--scaling linear").is_empty());
    }
}
