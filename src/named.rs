//! Choices that have names: on the command line, in results and in messages.

/// A choice among a few named ones.
pub trait Named: Copy + 'static {
    /// What is chosen, for messages, such as `policy`.
    const WHAT: &'static str;
    /// Every choice, in the order of the documentation.
    const ALL: &'static [Self];

    /// The name of the choice.
    fn name(self) -> &'static str;

    /// The choice of that name.
    ///
    /// # Errors
    /// A sentence with the text and the accepted names.
    fn parse(text: &str) -> Result<Self, String> {
        let named = Self::ALL.iter().find(|choice| choice.name() == text);
        named.copied().ok_or_else(|| {
            let accepted: Vec<&str> = Self::ALL.iter().map(|choice| choice.name()).collect();
            format!("unknown {} `{text}`; accepted: {}", Self::WHAT, accepted.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::KvType;
    use crate::eval::windows::Rule;
    use crate::model::DynamicPolicy;
    use crate::model::load::EngineName;

    fn round_trip<T: Named + PartialEq + std::fmt::Debug>() {
        for choice in T::ALL {
            assert_eq!(T::parse(choice.name()), Ok(*choice));
        }
        let refusal = T::parse("nonesuch").unwrap_err();
        assert!(refusal.starts_with(&format!("unknown {} `nonesuch`", T::WHAT)), "{refusal}");
        assert!(T::ALL.iter().all(|choice| refusal.contains(choice.name())), "{refusal}");
    }

    #[test]
    fn names_are_read_back_and_others_list_what_is_accepted() {
        round_trip::<KvType>();
        round_trip::<Rule>();
        round_trip::<DynamicPolicy>();
        round_trip::<EngineName>();
    }
}
