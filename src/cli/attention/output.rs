//! The result of `ropex attention` as tables and as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::report::Table;
use super::super::values::format_count;
use crate::engine::probe::AttentionProbe;
use crate::eval::attention::{Attention, Comparison, Statistic, Sums};
use crate::named::Named;

/// What was measured, under the setting asked for and the one to compare with.
pub struct Output<'a> {
    pub text: &'a Path,
    pub found: &'a Attention,
    /// The scaling in a few letters.
    pub name: String,
    /// Tokens of the original context.
    pub original: usize,
    /// Measurement, name and `rope` of the second setting.
    pub other: Option<&'a (Attention, String, Value)>,
}

/// Columns of the main tables, in the order of [`Statistic::ALL`].
const STATISTICS: [&str; 7] =
    ["first token", "sink", "entropy", "normalised", "effective tokens", "distance", "beyond sink"];

impl Output<'_> {
    pub fn comparison(&self) -> Option<Comparison<'_>> {
        self.other.and_then(|(other, ..)| Comparison::new(self.found, other))
    }

    /// `heads`: a row for each head in the main table, else for each layer.
    pub fn tables(&self, heads: bool) -> Vec<Table> {
        let mut tables = vec![self.main_table(self.found, &self.name, heads)];
        if let (Some(comparison), Some((other, name, _))) = (self.comparison(), self.other) {
            tables.push(self.main_table(other, name, heads));
            tables.push(differences(&comparison, &self.name, name, heads));
            tables.push(summary(&comparison, &self.name, name));
        }
        tables.push(self.distance_table());
        tables.push(self.position_table());
        tables
    }

    fn main_table(&self, found: &Attention, name: &str, heads: bool) -> Table {
        let title = format!(
            "attention of {} queries in {} tokens, {name}; sink: first {} tokens; entropy in nats, distances in tokens",
            format_count(found.queries()),
            format_count(found.tokens),
            found.sink_tokens,
        );
        let (mut table, all) = (Table::new(title, &columns(heads)), found.all());
        for layer in 0..found.n_layers {
            if heads {
                for head in 0..found.n_heads {
                    let row = [layer.to_string(), head.to_string()].into_iter();
                    table.row(row.chain(means(found.head(layer, head))));
                }
            } else {
                table.row([layer.to_string()].into_iter().chain(means(&found.layer(layer))));
            }
        }
        let labels = ["all".to_string(), "all".to_string()].into_iter().take(1 + usize::from(heads));
        table.row(labels.chain(means(&all)));
        table
    }

    fn distance_table(&self) -> Table {
        let title = "attention by distance from the query, mean over all heads".to_string();
        let mass = self.found.all().mass();
        let Some((other, name, _)) = self.other else {
            let mut table = Table::new(title, &["tokens away", "share"]);
            for (bucket, mass) in mass.iter().enumerate() {
                table.row([range(bucket), short(*mass)]);
            }
            return table;
        };
        let title = format!("{title}: {} and {name}", self.name);
        let mut table = Table::new(title, &["tokens away", "share", "against", "difference"]);
        for (bucket, (mass, other)) in mass.iter().zip(other.all().mass()).enumerate() {
            table.row([range(bucket), short(*mass), short(other), signed(mass - other)]);
        }
        table
    }

    fn position_table(&self) -> Table {
        let title = "by position of the query, mean over all heads".to_string();
        let picked = [Statistic::Sink, Statistic::Entropy, Statistic::NormalisedEntropy, Statistic::Distance];
        let cells = |sums: &Sums| picked.map(|statistic| cell(sums.mean(statistic)));
        let Some((other, name, _)) = self.other else {
            let mut table = Table::new(title, &["positions", "sink", "entropy", "normalised", "distance"]);
            for (bucket, sums) in self.found.by_position.filled() {
                table.row([range(bucket)].into_iter().chain(cells(sums)));
            }
            return table;
        };
        let title = format!("{title}: {} and {name}", self.name);
        let columns = [
            "positions",
            "sink",
            "against",
            "entropy",
            "against",
            "normalised",
            "against",
            "distance",
            "against",
        ];
        let mut table = Table::new(title, &columns);
        let buckets = self.found.by_position.filled().zip(other.by_position.filled());
        for ((bucket, sums), (_, other)) in buckets {
            let pairs = cells(sums).into_iter().zip(cells(other)).flat_map(|(a, b)| [a, b]);
            table.row([range(bucket)].into_iter().chain(pairs));
        }
        table
    }

    /// `result`; `tokens`: of the text, `with_bos`: whether it begins with the beginning-of-sequence token.
    pub fn json(&self, tokens: usize, with_bos: bool) -> Value {
        let found = self.found;
        let n_buckets = found.all().mass().len();
        let mut result = Map::new();
        let settings = json!({
            "text": self.text.display().to_string(),
            "context": tokens,
            "tokens": found.tokens,
            "first_query": found.first_query,
            "queries": found.queries(),
            "bos": with_bos,
            "sink_tokens": found.sink_tokens,
            "n_layers": found.n_layers,
            "n_heads": found.n_heads,
            "distance_starts": (0..n_buckets).map(AttentionProbe::smallest).collect::<Vec<_>>(),
        });
        result.extend(object(settings));
        result.extend(measured(found));
        let against = self.comparison().zip(self.other).map(|(comparison, (other, name, rope))| {
            let mut against = Map::new();
            against.insert("name".into(), name.as_str().into());
            against.insert("rope".into(), rope.clone());
            against.extend(measured(other));
            against.insert("difference".into(), difference_json(&comparison));
            Value::Object(against)
        });
        result.insert("against".into(), against.unwrap_or(Value::Null));
        Value::Object(result)
    }
}

fn columns(heads: bool) -> Vec<&'static str> {
    let labels = ["layer", "head"].into_iter().take(1 + usize::from(heads));
    labels.chain(STATISTICS).collect()
}

fn means(sums: &Sums) -> impl Iterator<Item = String> {
    Statistic::ALL.iter().map(|statistic| cell(sums.mean(*statistic)))
}

/// Per layer or head: the second setting taken from the first.
fn differences(comparison: &Comparison<'_>, name: &str, other: &str, heads: bool) -> Table {
    let title = format!("differences, {name} minus {other}");
    let mut table = Table::new(title, &columns(heads));
    let row = |of: &dyn Fn(Statistic) -> Option<f64>| -> Vec<String> {
        Statistic::ALL.iter().map(|statistic| of(*statistic).map_or("-".into(), signed)).collect()
    };
    for layer in 0..comparison.of.n_layers {
        if !heads {
            let cells = row(&|statistic| comparison.layer(layer, statistic));
            table.row([layer.to_string()].into_iter().chain(cells));
            continue;
        }
        for head in 0..comparison.of.n_heads {
            let cells = row(&|statistic| comparison.head(layer, head, statistic));
            table.row([layer.to_string(), head.to_string()].into_iter().chain(cells));
        }
    }
    table
}

fn summary(comparison: &Comparison<'_>, name: &str, other: &str) -> Table {
    let moved = short(comparison.mean_moved());
    let title = format!(
        "{name} against {other}, mean over all heads and the head that differs most; {moved} of the attention moved to \
         other distances"
    );
    let columns = ["statistic", "value", "against", "difference", "largest", "layer", "head"];
    let mut table = Table::new(title, &columns);
    let (of, to) = (comparison.of.all(), comparison.to.all());
    for (statistic, label) in Statistic::ALL.iter().zip(STATISTICS) {
        let largest = comparison.largest(*statistic);
        table.row([
            label.to_string(),
            cell(of.mean(*statistic)),
            cell(to.mean(*statistic)),
            comparison.mean(*statistic).map_or("-".into(), signed),
            largest.map_or("-".into(), |largest| signed(largest.difference)),
            largest.map_or("-".into(), |largest| largest.layer.to_string()),
            largest.map_or("-".into(), |largest| largest.head.to_string()),
        ]);
    }
    table
}

/// The numbers of one measurement: all heads, layers with their heads, and by position.
fn measured(found: &Attention) -> Map<String, Value> {
    let layers = (0..found.n_layers).map(|layer| {
        let heads = (0..found.n_heads).map(|head| Value::Object(means_json(found.head(layer, head))));
        let mut means = means_json(&found.layer(layer));
        means.insert("heads".into(), heads.collect());
        Value::Object(means)
    });
    let positions = found.by_position.filled().map(|(bucket, sums)| {
        let positions = AttentionProbe::distances(bucket);
        let mut row = Map::new();
        row.insert("from".into(), positions.start.max(found.first_query).into());
        row.insert("to".into(), positions.end.min(found.tokens).into());
        row.extend(means_json(sums));
        Value::Object(row)
    });
    let mut numbers = Map::new();
    numbers.insert("mean".into(), Value::Object(means_json(&found.all())));
    numbers.insert("layers".into(), layers.collect());
    numbers.insert("by_position".into(), positions.collect());
    numbers
}

fn means_json(sums: &Sums) -> Map<String, Value> {
    let means =
        Statistic::ALL.iter().map(|statistic| (statistic.name().into(), sums.mean(*statistic).into()));
    let mut object: Map<String, Value> = means.collect();
    object.insert("mass".into(), sums.mass().into());
    object
}

fn difference_json(comparison: &Comparison<'_>) -> Value {
    let statistics = |of: &dyn Fn(Statistic) -> Option<f64>| -> Map<String, Value> {
        Statistic::ALL.iter().map(|statistic| (statistic.name().into(), of(*statistic).into())).collect()
    };
    let largest: Map<String, Value> = Statistic::ALL
        .iter()
        .map(|statistic| {
            let largest = comparison.largest(*statistic);
            let value = largest.map(
                |largest| json!({ "layer": largest.layer, "head": largest.head, "difference": largest.difference }),
            );
            (statistic.name().into(), value.unwrap_or(Value::Null))
        })
        .collect();
    let layers = (0..comparison.of.n_layers).map(|layer| {
        let heads = (0..comparison.of.n_heads).map(|head| {
            let mut head_json = statistics(&|statistic| comparison.head(layer, head, statistic));
            head_json.insert("moved".into(), comparison.moved(layer, head).into());
            Value::Object(head_json)
        });
        let mut layer_json = statistics(&|statistic| comparison.layer(layer, statistic));
        layer_json.insert("heads".into(), heads.collect());
        Value::Object(layer_json)
    });
    let mut mean = statistics(&|statistic| comparison.mean(statistic));
    mean.insert("moved".into(), comparison.mean_moved().into());
    json!({ "mean": mean, "largest": largest, "layers": layers.collect::<Value>() })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The distances or positions of a bucket.
pub fn range(bucket: usize) -> String {
    let distances = AttentionProbe::distances(bucket);
    match distances.len() {
        1 => distances.start.to_string(),
        _ => format!("{}-{}", distances.start, distances.end - 1),
    }
}

fn cell(value: Option<f64>) -> String {
    value.map_or("-".to_string(), short)
}

/// Four decimals below 10, else as many as leave four digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size < 9.99995 => format!("{value:.4}"),
        size if size < 99.995 => format!("{value:.2}"),
        size if size < 999.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The same with its sign: a plus keeps numbers in their column.
fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", short(value)) } else { short(value) }
}
