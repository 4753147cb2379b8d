//! A line in one of the formats, or in the one that reads it.

use super::field_map::FieldMap;
use super::fields::LineFields;
use super::options::LogFormat;
use super::problems::ProblemKind;
use super::{alb, caddy, combined, envoy, haproxy, tollgate, traefik};
use crate::labels::labels;
use crate::limit::units::Timestamp;

labels! {
    /// The format of one line.
    pub(super) enum LineFormat {
        Tollgate = "tollgate",
        Combined = "combined",
        Caddy = "caddy",
        Traefik = "traefik",
        Envoy = "envoy",
        Haproxy = "haproxy",
        Alb = "alb",
        Mapped = "map",
    }
}

impl LineFormat {
    /// `None`: found out for each file.
    pub(super) const fn of(format: LogFormat) -> Option<Self> {
        Some(match format {
            LogFormat::Auto => return None,
            LogFormat::Tollgate => Self::Tollgate,
            LogFormat::Combined => Self::Combined,
            LogFormat::Caddy => Self::Caddy,
            LogFormat::Traefik => Self::Traefik,
            LogFormat::Envoy => Self::Envoy,
            LogFormat::Haproxy => Self::Haproxy,
            LogFormat::Alb => Self::Alb,
        })
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// The line is not of this format, or has no request.
    pub(super) fn read<'l>(
        self,
        line: &'l [u8],
        map: Option<&'l FieldMap>,
        fields: &mut LineFields<'l>,
    ) -> Result<(), ProblemKind> {
        match self {
            Self::Tollgate => tollgate::read(line, fields),
            Self::Combined => combined::read(line, fields),
            Self::Caddy => caddy::read(line, fields),
            Self::Traefik => traefik::read(line, fields),
            Self::Envoy => envoy::read(line, fields),
            Self::Haproxy => haproxy::read(line, fields),
            Self::Alb => alb::read(line, fields),
            Self::Mapped => map.ok_or(ProblemKind::NotReadable)?.read(line, fields),
        }
    }

    /// When the request of a line arrived; the rest of the line is read only as far as that needs it.
    ///
    /// # Errors
    ///
    /// The line is not of this format, or has no time.
    pub(super) fn arrival(self, line: &[u8], map: Option<&FieldMap>) -> Result<Timestamp, ProblemKind> {
        match self {
            Self::Tollgate => tollgate::time(line),
            Self::Combined => combined::time(line),
            Self::Caddy | Self::Traefik | Self::Envoy | Self::Haproxy | Self::Alb | Self::Mapped => {
                let mut fields = LineFields::default();
                self.read(line, map, &mut fields)?;
                fields.arrival()
            }
        }
    }

    /// The format that reads this line.
    pub(super) fn detect(line: &[u8]) -> Option<Self> {
        let candidates: &[Self] = match line.trim_ascii_start().first() {
            Some(b'{') => &[Self::Tollgate, Self::Traefik, Self::Envoy, Self::Caddy],
            // The combined format is the last one: it ends anyhow, so parts of other lines may look like it.
            _ => &[Self::Envoy, Self::Haproxy, Self::Alb, Self::Caddy, Self::Combined],
        };
        candidates.iter().copied().find(|format| format.read(line, None, &mut LineFields::default()).is_ok())
    }
}
