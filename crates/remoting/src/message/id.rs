//! The two kinds of message id, both upper-case hex (Apache `MessageDecoder.createMessageId`, `MessageClientIDSetter`).
//!
//! ```text
//! offset id  store host address (4 | 16)  port int32     commit log offset int64             32 | 56 digits
//! unique id  address (4 | 16)  pid int16  loader int32  ms since the month began int32  counter int16   32 | 56 digits
//! ```
//! An id does not say which kind it is.

use crate::error::WireError;
use crate::message::properties::names;
use crate::text::{Case, hex};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Size of an id with an IPv6 address, in bytes; it has two digits for each.
const MAX_ID_BYTES: usize = 28;

/// The two upper-case hex digits of each byte.
pub static HEX_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte: u8 = 0;
    loop {
        pairs[byte as usize] = hex(byte, Case::Upper);
        if byte == u8::MAX {
            break pairs;
        }
        byte += 1;
    }
};

/// The digits of an id.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    text: [u8; 2 * MAX_ID_BYTES],
    length: usize,
}

impl Digits {
    fn of_ip(ip: IpAddr) -> Self {
        let mut digits = Self {
            text: [0; 2 * MAX_ID_BYTES],
            length: 0,
        };
        match ip {
            IpAddr::V4(ip) => digits.push(ip.octets()),
            IpAddr::V6(ip) => digits.push(ip.octets()),
        }
        digits
    }

    #[inline]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        let rest = self.text.get_mut(self.length..).unwrap_or_default();
        let (places, _) = rest.as_chunks_mut::<2>();
        for (place, byte) in places.iter_mut().zip(bytes) {
            *place = HEX_PAIRS[usize::from(byte)];
        }
        self.length += 2 * N;
    }

    /// The digits as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// The bytes of an id and their number, 16 or 28; other lengths are invalid.
fn unhex(text: &str, field: &'static str) -> Result<([u8; MAX_ID_BYTES], usize), WireError> {
    let bad = || WireError::BadField {
        field,
        expected: "32 or 56 hexadecimal digits",
        value: text.chars().take(80).collect(),
    };
    let count = match text.len() {
        32 => 16,
        56 => 28,
        _ => return Err(bad()),
    };
    let mut bytes = [0; MAX_ID_BYTES];
    for (pair, byte) in text.as_bytes().chunks_exact(2).zip(bytes.iter_mut()) {
        for digit in pair {
            let digit = char::from(*digit)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok());
            *byte = (*byte << 4) | digit.ok_or_else(bad)?;
        }
    }
    Ok((bytes, count))
}

fn split_ip(bytes: &[u8; MAX_ID_BYTES], count: usize) -> (IpAddr, &[u8]) {
    if count == 16 {
        let (ip, rest) = bytes
            .split_first_chunk::<4>()
            .map_or(([0; 4], [].as_slice()), |(ip, rest)| (*ip, rest));
        (IpAddr::V4(Ipv4Addr::from(ip)), rest)
    } else {
        let (ip, rest) = bytes
            .split_first_chunk::<16>()
            .map_or(([0; 16], [].as_slice()), |(ip, rest)| (*ip, rest));
        (IpAddr::V6(Ipv6Addr::from(ip)), rest)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

/// A message's position: `msgId` in the response to a send, and the argument of request 33.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OffsetId {
    /// The broker that stored the message.
    pub host: SocketAddr,
    /// Position of the message in that broker's commit log.
    pub offset: i64,
}

impl OffsetId {
    /// The digits.
    pub fn digits(&self) -> Digits {
        let mut digits = Digits::of_ip(self.host.ip());
        digits.push(u32::from(self.host.port()).to_be_bytes());
        digits.push(self.offset.to_be_bytes());
        digits
    }
}

impl fmt::Display for OffsetId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.digits().as_str())
    }
}

impl FromStr for OffsetId {
    type Err = WireError;
    fn from_str(text: &str) -> Result<Self, WireError> {
        let (bytes, count) = unhex(text, "msgId")?;
        let (ip, rest) = split_ip(&bytes, count);
        let port = u32::from_be_bytes(number(rest, 0));
        let port = u16::try_from(port).map_err(|_| WireError::BadField {
            field: "msgId",
            expected: "an id with a port",
            value: text.to_owned(),
        })?;
        Ok(Self {
            host: SocketAddr::new(ip, port),
            offset: i64::from_be_bytes(number(rest, 4)),
        })
    }
}

/// The parts of a unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId {
    /// The producer's address.
    pub ip: IpAddr,
    /// The low half of the producer's process id.
    pub pid: u16,
    /// Hash of Java's class loader; in pyrmq, a random number for each process.
    pub loader: u32,
    /// Milliseconds since the month began, in the producer's time zone.
    pub month_ms: i32,
    /// Counts the ids of the process, modulo 65,536.
    pub counter: u16,
}

impl UniqueId {
    /// The digits.
    pub fn digits(&self) -> Digits {
        let mut digits = Digits::of_ip(self.ip);
        digits.push(self.pid.to_be_bytes());
        digits.push(self.loader.to_be_bytes());
        digits.push(self.month_ms.to_be_bytes());
        digits.push(self.counter.to_be_bytes());
        digits
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.digits().as_str())
    }
}

impl FromStr for UniqueId {
    type Err = WireError;
    fn from_str(text: &str) -> Result<Self, WireError> {
        let (bytes, count) = unhex(text, names::UNIQ_KEY)?;
        let (ip, rest) = split_ip(&bytes, count);
        Ok(Self {
            ip,
            pid: u16::from_be_bytes(number(rest, 0)),
            loader: u32::from_be_bytes(number(rest, 2)),
            month_ms: i32::from_be_bytes(number(rest, 6)),
            counter: u16::from_be_bytes(number(rest, 10)),
        })
    }
}

/// Generates unique ids; all threads of a process share it.
#[derive(Debug)]
pub struct UniqueIds {
    ip: IpAddr,
    pid: u16,
    loader: u32,
    counter: AtomicU32,
    month_start: AtomicI64,
    month_end: AtomicI64,
}

impl UniqueIds {
    /// `loader` should differ between the generators of one process; months are counted in UTC.
    pub fn new(ip: IpAddr, pid: u32, loader: u32) -> Self {
        let [_, _, high, low] = pid.to_be_bytes();
        Self {
            ip,
            pid: u16::from_be_bytes([high, low]),
            loader,
            counter: AtomicU32::new(0),
            month_start: AtomicI64::new(0),
            month_end: AtomicI64::new(0),
        }
    }

    /// The next id.
    pub fn next(&self, now_ms: i64) -> UniqueId {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = counter.to_be_bytes();
        if now_ms >= self.month_end.load(Ordering::Acquire) {
            let (start, end) = month_around(now_ms);
            self.month_start.store(start, Ordering::Release);
            self.month_end.store(end, Ordering::Release);
        }
        let since = now_ms - self.month_start.load(Ordering::Acquire);
        UniqueId {
            ip: self.ip,
            pid: self.pid,
            loader: self.loader,
            month_ms: i32::try_from(since.max(0)).unwrap_or(i32::MAX),
            counter: u16::from_be_bytes([high, low]),
        }
    }

    /// Appends the digits of the next id.
    pub fn write_next(&self, now_ms: i64, out: &mut String) {
        out.push_str(self.next(now_ms).digits().as_str());
    }
}

/// First millisecond of the UTC month that holds `now_ms`, and of the next one.
fn month_around(now_ms: i64) -> (i64, i64) {
    const DAY: i64 = 86_400_000;
    // Civil date from days, by eras of 400 years that begin on the first of March.
    let day = now_ms.div_euclid(DAY);
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5;
    let leap_march_year = year_of_era + era * 400 + 1;
    let is_leap = leap_march_year % 4 == 0 && (leap_march_year % 100 != 0 || leap_march_year % 400 == 0);
    let days = match month_from_march {
        1 | 3 | 6 | 8 => 30,
        11 => 28 + i64::from(is_leap),
        _ => 31,
    };
    let first = day - day_of_month;
    (first * DAY, (first + days) * DAY)
}

#[cfg(test)]
mod tests {
    use super::month_around;

    #[test]
    fn months_follow_the_calendar() {
        const DAY: i64 = 86_400_000;
        // (a day, first of its month, first of the next), in days since 1970.
        for (day, first, next) in [
            (0, 0, 31),
            (30, 0, 31),
            (31, 31, 59),
            (58, 31, 59),
            (59, 59, 90),
            (11_016, 10_988, 11_017), // 2000-02-29
            (11_017, 11_017, 11_048),
            (19_782, 19_754, 19_783), // 2024-02-29
            (19_722, 19_692, 19_723), // 2023-12-31
            (20_778, 20_758, 20_788), // 2026-11-21
        ] {
            assert_eq!(month_around(day * DAY), (first * DAY, next * DAY), "day {day}");
            assert_eq!(
                month_around(day * DAY + DAY - 1),
                (first * DAY, next * DAY),
                "end of day {day}"
            );
        }
    }
}
