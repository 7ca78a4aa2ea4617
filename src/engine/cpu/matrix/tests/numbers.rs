//! Activations and stored weights for tests.

use crate::checkpoint::tensor::TensorType;

/// A small deterministic source of numbers.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Roughly normal, by the sum of twelve uniform values.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum::<f32>() - 6.0
    }

    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }

    /// Random blocks with small positive multipliers.
    pub fn stored(&mut self, dtype: TensorType, outputs: usize, inputs: usize) -> Vec<u8> {
        let size_bytes = dtype.size_bytes(&[outputs, inputs]).unwrap();
        match dtype {
            TensorType::F32 => {
                return self.normals(size_bytes / 4).iter().flat_map(|x| x.to_le_bytes()).collect();
            }
            TensorType::F16 => {
                let halves = self.normals(size_bytes / 2).into_iter().map(half::f16::from_f32);
                return halves.flat_map(|x| x.to_le_bytes()).collect();
            }
            TensorType::BF16 => {
                let halves = self.normals(size_bytes / 2).into_iter().map(half::bf16::from_f32);
                return halves.flat_map(|x| x.to_le_bytes()).collect();
            }
            _ => {}
        }
        let mut bytes: Vec<u8> = (0..size_bytes).map(|_| self.next() as u8).collect();
        let multipliers: &[usize] = match dtype {
            TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q8_1 | TensorType::Q4K | TensorType::Q5K => {
                &[0, 2]
            }
            TensorType::Q2K => &[80, 82],
            TensorType::Q3K => &[108],
            TensorType::Q6K => &[208],
            _ => &[0],
        };
        for block in bytes.chunks_exact_mut(dtype.bytes_per_block()) {
            if dtype == TensorType::MXFP4 {
                block[0] = 118 + (self.next() % 4) as u8;
                continue;
            }
            if dtype == TensorType::Q8K {
                block[..4].copy_from_slice(&(self.normal().abs() * 0.01).to_le_bytes());
                continue;
            }
            for at in multipliers {
                let half = half::f16::from_f32(self.normal().abs() * 0.01);
                block[*at..*at + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        bytes
    }
}
