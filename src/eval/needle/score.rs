//! When a generated answer counts, and where the right one ranks by likelihood.

/// Whether `text` holds `value` as a whole: no letter or digit touches it, and it is no part of a longer number such as
/// `4821.5` or `14,821`. Letters compare without case.
pub fn holds(text: &str, value: &str) -> bool {
    let (text, value) = (text.to_lowercase(), value.to_lowercase());
    if value.is_empty() {
        return false;
    }
    let numeric = value.bytes().all(|b| b.is_ascii_digit());
    text.match_indices(&value).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + value.len()..]);
        let touches = before.chars().next_back().is_some_and(char::is_alphanumeric)
            || after.chars().next().is_some_and(char::is_alphanumeric);
        !(touches || numeric && is_part(before, after, value.len()))
    })
}

/// Whether a group of `digits` digits is a part of a longer number: behind a point, before one, or among thousands.
fn is_part(before: &str, after: &str, digits: usize) -> bool {
    let mut last = before.chars().rev();
    let (separator, left) = (last.next(), last.next().is_some_and(|c| c.is_ascii_digit()));
    let right = |mark: char| {
        let group = after.strip_prefix(mark).unwrap_or_default();
        group.bytes().take_while(u8::is_ascii_digit).count()
    };
    let decimals = separator == Some('.') && left || right('.') > 0;
    let thousands = separator == Some(',') && left && digits == 3 || digits <= 3 && right(',') == 3;
    decimals || thousands
}

/// Share of `values` that [`holds`] finds in `text`.
pub fn strict(text: &str, values: &[String]) -> f64 {
    share(values, |value| holds(text, value))
}

/// Share of `values` that stand anywhere in `text`, without case: RULER's score, which finds 4821 in 48210.
/// Source: RULER, scripts/eval/synthetic/constants.py, string_match_all.
pub fn substring(text: &str, values: &[String]) -> f64 {
    let text = text.to_lowercase();
    share(values, |value| text.contains(&value.to_lowercase()))
}

fn share(values: &[String], found: impl Fn(&str) -> bool) -> f64 {
    let hits = values.iter().filter(|value| found(value)).count();
    hits as f64 / values.len() as f64
}

/// Natural log-probabilities of `ids` under one row of logits.
pub fn log_probs(logits: &[f32], ids: impl Iterator<Item = u32>) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    ids.map(|id| f64::from(logits[id as usize] - most) - sum.ln()).collect()
}

/// 1 when the right answer is more likely than every decoy; ties count against it.
pub fn rank(answer: f64, decoys: &[f64]) -> usize {
    1 + decoys.iter().filter(|decoy| **decoy >= answer).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D100: a value counts wherever it stands in a sentence, and not inside a longer number.
    #[test]
    fn d100_values_are_matched_with_borders() {
        for text in
            ["It is 4821.", "4821", "(4821)", "the code 4821, of course", "4821,1973", "no. 4821", "a-4821"]
        {
            assert!(holds(text, "4821"), "{text}");
        }
        for text in ["48210", "14821", "x4821", "4821th", "4821.5", "3.4821", "482 1", ""] {
            assert!(!holds(text, "4821"), "{text}");
        }
        assert!(!holds("14,821", "821") && !holds("821,973", "821") && holds("14,", "14"));
        assert!(holds("It is Silver-Otter!", "silver-otter") && !holds("silver-otters", "silver-otter"));
        assert!(!holds("anything", ""));
        let wanted = ["4821".to_string(), "77".to_string()];
        assert_eq!((strict("48210 and 77", &wanted), substring("48210 and 77", &wanted)), (0.5, 1.0));
    }

    #[test]
    fn ties_count_against_the_right_answer() {
        assert_eq!(rank(-1.0, &[-2.0, -3.0]), 1);
        assert_eq!(rank(-1.0, &[-1.0, -3.0, -0.5]), 3);
        assert_eq!(rank(-1.0, &[]), 1);
    }

    #[test]
    fn log_probabilities_add_up_to_one() {
        let logits = [0.0, 1.0, -700.0, 88.0];
        let sum: f64 = log_probs(&logits, 0..4).iter().map(|x| x.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }
}
