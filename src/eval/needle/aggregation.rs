//! Common words and frequent words: what stands most often in a text that is nothing but words.
//! Source: RULER (Hsieh et al. 2024, section 3).

use std::collections::HashSet;

use super::NeedleError;
use super::exam::{Contest, Exam, Question};
use super::lists::{CodedText, CommonList, FREQUENT};
use super::random::Random;
use super::task::Setting;
use super::values::{Candidate, decoys, typical};
use super::words::{ADJECTIVES, ANIMALS, PEOPLE, PLACES, THINGS};

/// A numbered list; the words that stand most often are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonWords {
    /// Words that are asked for.
    pub words: usize,
    /// How often each of them stands in the list.
    pub repeats: usize,
    /// How often every other word does.
    pub rare_repeats: usize,
}

/// Coded words whose frequencies follow a power law; the three most frequent are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrequentWords {
    /// Exponent of the law, above 1.
    pub alpha: f64,
}

/// What joins words to each other and to the question.
const BEFORE_WORD: &str = " ";
/// Letters of a coded word.
const CODE_LETTERS: usize = 6;

/// Two plain words joined: more words than any list needs.
fn compound(random: &mut Random) -> String {
    const KINDS: [&[&str]; 5] = [ADJECTIVES, THINGS, PEOPLE, ANIMALS, PLACES];
    let mut word = || {
        let kind = random.pick(&KINDS);
        random.pick(kind)
    };
    format!("{}{}", word(), word())
}

fn code(random: &mut Random) -> String {
    (0..CODE_LETTERS).map(|_| char::from(random.pick(b"abcdefghijklmnopqrstuvwxyz"))).collect()
}

/// Words with the same number of tokens: the right answers, and as many others as needed, the decoys first.
struct Pool {
    right: Vec<Candidate>,
    wrong: Vec<Candidate>,
    control: Vec<Candidate>,
}

impl Pool {
    /// `right` answers; `others`: how many more words the longest text needs when a word has this many tokens.
    fn new(
        setting: &Setting<'_>,
        right: usize,
        others: impl Fn(usize) -> usize,
        mut draw: impl FnMut() -> String,
    ) -> Result<Self, NeedleError> {
        let mut taken = HashSet::new();
        let first = typical(BEFORE_WORD, setting.fragments, &mut draw)?;
        taken.insert(first.text.clone());
        let others = others(first.tokens.len());
        let count = right + 2 * others - 1;
        let mut right_words = decoys(&first, count, BEFORE_WORD, setting.fragments, &mut taken, draw)?;
        right_words.insert(0, first);
        // In turns, so that a longer text draws more words and not others.
        let mut pool = Self { wrong: Vec::new(), control: Vec::new(), right: Vec::new() };
        for (index, word) in right_words.split_off(right).into_iter().enumerate() {
            let list = if index % 2 == 0 { &mut pool.wrong } else { &mut pool.control };
            list.push(word);
        }
        Ok(Self { right: right_words, ..pool })
    }

    /// A contest for every right word; the decoys are words of the text that stand less often.
    fn ask(&self, question: &mut Question, n_decoys: usize) {
        for answer in &self.right {
            let decoys = self.wrong[..n_decoys].to_vec();
            question.contests.push(Contest { answer: answer.clone(), decoys });
            question.wanted.push(answer.text.clone());
        }
    }
}

fn tokens(candidates: &[Candidate]) -> Vec<Vec<u32>> {
    candidates.iter().map(|candidate| candidate.tokens.clone()).collect()
}

impl CommonWords {
    pub(super) fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        let n = self.words;
        let question = format!("Which {n} words stand most often in the list?");
        let opening = format!("The {n} words that stand most often in the list are");
        let mut question = Question::new(setting.frame, &question, &opening, setting.fragments)?;
        let mut random = setting.random("words", trial);
        let mut numbers = Vec::new();
        let mut used = 0;
        while used < setting.longest {
            let number = setting.fragments.encode(&format!(" {}.", numbers.len() + 1))?;
            // A word has at least one token.
            used += number.len() + 1;
            numbers.push(number);
        }
        let others = |word: usize| {
            let mut left = setting.longest;
            let fits = numbers.iter().take_while(|number| {
                let enough = left >= number.len() + word;
                left = left.saturating_sub(number.len() + word);
                enough
            });
            // One more is cut at the end of the text.
            (fits.count().div_ceil(self.rare_repeats) + 1).max(setting.decoys)
        };
        let pool = Pool::new(setting, n, others, || compound(&mut random))?;
        pool.ask(&mut question, setting.decoys);
        let body = CommonList {
            random: setting.random("order", trial),
            common: tokens(&pool.right),
            common_repeats: self.repeats,
            rare: tokens(&pool.wrong),
            rare_repeats: self.rare_repeats,
            others: tokens(&pool.control),
            numbers,
        };
        let head = setting.head("Remember which words stand most often in this list.")?;
        Ok(Exam { head, body: Box::new(body), questions: vec![question] })
    }
}

impl FrequentWords {
    pub(super) fn exam(&self, setting: &Setting<'_>, trial: usize) -> Result<Exam, NeedleError> {
        let asked = "Apart from the dots, which three words stand most often in the text?";
        let opening = "Apart from the dots, the three words that stand most often in the text are";
        let mut question = Question::new(setting.frame, asked, opening, setting.fragments)?;
        let mut random = setting.random("codes", trial);
        // The rank that still stands once in a text of n words grows with the root of n, for exponents of 2 and above; below
        // that, later ranks are left out.
        let words = (setting.longest as f64).sqrt().ceil() as usize + setting.decoys + FREQUENT;
        let pool = Pool::new(setting, FREQUENT, |_| words, || code(&mut random))?;
        pool.ask(&mut question, setting.decoys);
        let body = CodedText {
            random: setting.random("order", trial),
            alpha: self.alpha,
            dots: setting.fragments.encode(" ...")?,
            words: tokens(&[&pool.right[..], &pool.wrong[..]].concat()),
            others: tokens(&pool.control),
        };
        let head = setting.head("Remember which words stand most often in this coded text.")?;
        Ok(Exam { head, body: Box::new(body), questions: vec![question] })
    }
}
