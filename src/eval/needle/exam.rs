//! One trial of a task: what is hidden, what is asked, which answers are right and which are not.

use super::NeedleError;
use super::fragments::Fragments;
use super::frame::Frame;
use super::values::Candidate;

/// A right answer and wrong ones that look like it, compared by their probability after the same prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Contest {
    pub answer: Candidate,
    pub decoys: Vec<Candidate>,
}

/// A question on a haystack.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Everything behind the haystack, up to where the answer begins.
    pub tail: Vec<u32>,
    /// What joins an answer to the tail.
    pub before_answer: &'static str,
    /// Compared by likelihood; may be empty.
    pub contests: Vec<Contest>,
    /// What a generated answer must hold; empty when nothing is generated for this question.
    pub wanted: Vec<String>,
}

impl Question {
    /// A question without answers yet.
    ///
    /// # Errors
    /// A vocabulary that cannot write it.
    pub fn new(
        frame: &Frame,
        question: &str,
        opening: &str,
        fragments: &Fragments<'_>,
    ) -> Result<Self, NeedleError> {
        Ok(Self {
            tail: frame.tail(question, opening, fragments)?,
            before_answer: frame.before_answer(opening),
            contests: Vec::new(),
            wanted: Vec::new(),
        })
    }
}

/// The text between introduction and question.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    /// Exactly as many tokens as asked for.
    pub tokens: Vec<u32>,
    /// Where the answers stand, as shares of `tokens`; empty in a control and where they are everywhere.
    pub depths: Vec<f64>,
}

/// What a trial's text is made of.
pub trait Body {
    /// Exactly `budget` tokens.
    ///
    /// `depth`: where the answers are hidden, 0 (start) to 1 (end); `None`: at the trial's own random depths.
    /// `with_answers`: `false` for a control, which holds no answer.
    ///
    /// # Errors
    /// [`NeedleError::Budget`] when what must be there does not fit.
    fn fill(&self, budget: usize, depth: Option<f64>, with_answers: bool) -> Result<Filled, NeedleError>;
}

/// One trial.
pub struct Exam {
    /// Tokens before the body, the frame's included.
    pub head: Vec<u32>,
    pub body: Box<dyn Body>,
    pub questions: Vec<Question>,
}

impl Exam {
    /// Tokens of every prompt that are not body: head and longest tail.
    pub fn overhead(&self) -> usize {
        self.head.len() + self.questions.iter().map(|question| question.tail.len()).max().unwrap_or(0)
    }

    /// Tokens that an answer may need: the longest candidate, and all wanted answers with words between them.
    pub fn longest_answer(&self, fragments: &Fragments<'_>) -> Result<usize, NeedleError> {
        let candidate = |candidate: &Candidate| candidate.tokens.len();
        let contests = self.questions.iter().flat_map(|question| &question.contests);
        let all = contests.flat_map(|contest| contest.decoys.iter().chain([&contest.answer]));
        let mut longest = all.map(candidate).max().unwrap_or(0);
        for question in &self.questions {
            let listed = question.wanted.join(", ");
            let ids = fragments.encode(&format!("{}{listed}", question.before_answer))?;
            longest = longest.max(ids.len());
        }
        Ok(longest)
    }
}
