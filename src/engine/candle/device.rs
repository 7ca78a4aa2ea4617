//! Which device computes: the one place that opens it.

use std::fmt;
use std::str::FromStr;

use candle_core::Device;

use crate::engine::EngineError;

/// A device as the user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceName {
    #[default]
    Cpu,
    /// A CUDA device by its number.
    Cuda(usize),
    Metal,
}

impl DeviceName {
    /// Opens the device.
    ///
    /// # Errors
    /// [`EngineError::Device`] when this build or this machine does not have it.
    pub fn open(self) -> Result<Device, EngineError> {
        let (built, feature) = match self {
            DeviceName::Cpu => return Ok(Device::Cpu),
            DeviceName::Cuda(_) => (cfg!(feature = "cuda"), "cuda"),
            DeviceName::Metal => (cfg!(feature = "metal"), "metal"),
        };
        let error = |reason: String| EngineError::Device { device: self.to_string(), reason };
        if !built {
            return Err(error(format!(
                "this build has no {feature} support; build with `--features {feature}`"
            )));
        }
        let device = match self {
            DeviceName::Cuda(index) => Device::new_cuda(index),
            _ => Device::new_metal(0),
        };
        device.map_err(|source| error(source.to_string()))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Cuda(index) => write!(f, "cuda:{index}"),
            DeviceName::Metal => f.write_str("metal"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("unknown device `{text}`; accepted: cpu, cuda, cuda:N, metal");
        match text {
            "cpu" => Ok(DeviceName::Cpu),
            "cuda" => Ok(DeviceName::Cuda(0)),
            "metal" => Ok(DeviceName::Metal),
            _ => {
                let index = text.strip_prefix("cuda:").ok_or_else(bad)?;
                Ok(DeviceName::Cuda(index.parse().map_err(|_| bad())?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for name in ["cpu", "cuda:3", "metal"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for bad in ["", "gpu", "cuda:", "cuda:x"] {
            assert!(bad.parse::<DeviceName>().is_err(), "{bad}");
        }
    }

    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    #[test]
    fn absent_devices_say_how_to_build_them() {
        let error = DeviceName::Cuda(0).open().unwrap_err().to_string();
        assert!(error.contains("--features cuda"), "{error}");
    }
}
