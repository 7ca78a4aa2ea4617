//! Products with weight matrices.
