//! Tasks by name, and what RULER's configurations set.

use crate::eval::needle::ValueKind;
use crate::named::Named;

/// Tasks by the names of RULER's families and of its configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskName {
    Single,
    MultiKey,
    MultiValue,
    MultiQuery,
    VariableTracking,
    CommonWords,
    FrequentWords,
    NiahSingle1,
    NiahSingle2,
    NiahSingle3,
    NiahMultiKey1,
    NiahMultiKey2,
    NiahMultiKey3,
    NiahMultiValue,
    NiahMultiQuery,
    Vt,
    Cwe,
    Fwe,
}

impl Named for TaskName {
    const WHAT: &'static str = "task";
    const ALL: &'static [Self] = &[
        Self::Single,
        Self::MultiKey,
        Self::MultiValue,
        Self::MultiQuery,
        Self::VariableTracking,
        Self::CommonWords,
        Self::FrequentWords,
        Self::NiahSingle1,
        Self::NiahSingle2,
        Self::NiahSingle3,
        Self::NiahMultiKey1,
        Self::NiahMultiKey2,
        Self::NiahMultiKey3,
        Self::NiahMultiValue,
        Self::NiahMultiQuery,
        Self::Vt,
        Self::Cwe,
        Self::Fwe,
    ];

    fn name(self) -> &'static str {
        match self {
            TaskName::Single => "single",
            TaskName::MultiKey => "multi-key",
            TaskName::MultiValue => "multi-value",
            TaskName::MultiQuery => "multi-query",
            TaskName::VariableTracking => "variable-tracking",
            TaskName::CommonWords => "common-words",
            TaskName::FrequentWords => "frequent-words",
            TaskName::NiahSingle1 => "niah_single_1",
            TaskName::NiahSingle2 => "niah_single_2",
            TaskName::NiahSingle3 => "niah_single_3",
            TaskName::NiahMultiKey1 => "niah_multikey_1",
            TaskName::NiahMultiKey2 => "niah_multikey_2",
            TaskName::NiahMultiKey3 => "niah_multikey_3",
            TaskName::NiahMultiValue => "niah_multivalue",
            TaskName::NiahMultiQuery => "niah_multiquery",
            TaskName::Vt => "vt",
            TaskName::Cwe => "cwe",
            TaskName::Fwe => "fwe",
        }
    }
}

/// The name of a task; RULER's two question-answering tasks need data that is not here.
pub fn parse_task(text: &str) -> Result<TaskName, String> {
    let data = match text {
        "qa_1" => "SQuAD",
        "qa_2" => "HotpotQA",
        _ => return TaskName::parse(text),
    };
    Err(format!(
        "`{text}` needs the data set {data}, which ropex does not have; use `--needle`, `--question` and `--answer` for questions of your own"
    ))
}

impl TaskName {
    /// The family that a configuration of RULER belongs to.
    pub fn family(self) -> Self {
        match self {
            TaskName::NiahSingle1 | TaskName::NiahSingle2 | TaskName::NiahSingle3 => TaskName::Single,
            TaskName::NiahMultiKey1 | TaskName::NiahMultiKey2 | TaskName::NiahMultiKey3 => TaskName::MultiKey,
            TaskName::NiahMultiValue => TaskName::MultiValue,
            TaskName::NiahMultiQuery => TaskName::MultiQuery,
            TaskName::Vt => TaskName::VariableTracking,
            TaskName::Cwe => TaskName::CommonWords,
            TaskName::Fwe => TaskName::FrequentWords,
            family => family,
        }
    }

    /// Whether this is one of RULER's configurations, whose needles stand at random depths.
    pub fn is_ruler(self) -> bool {
        self != self.family()
    }

    pub fn haystack(self) -> HaystackName {
        match self {
            TaskName::NiahSingle1 | TaskName::Vt => HaystackName::Noise,
            TaskName::NiahMultiKey2 | TaskName::NiahMultiKey3 => HaystackName::Needles,
            _ => HaystackName::Prose,
        }
    }

    /// Kinds of key and value.
    pub fn kinds(self) -> (ValueKind, ValueKind) {
        match self {
            TaskName::NiahSingle3 => (ValueKind::Word, ValueKind::Uuid),
            TaskName::NiahMultiKey3 => (ValueKind::Uuid, ValueKind::Uuid),
            _ => (ValueKind::Word, ValueKind::Number),
        }
    }
}

/// Filler that ropex makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaystackName {
    Prose,
    Noise,
    Needles,
}

impl Named for HaystackName {
    const WHAT: &'static str = "haystack";
    const ALL: &'static [Self] = &[Self::Prose, Self::Noise, Self::Needles];

    fn name(self) -> &'static str {
        match self {
            HaystackName::Prose => "prose",
            HaystackName::Noise => "noise",
            HaystackName::Needles => "needles",
        }
    }
}
