//! Which network addresses belong to the public Internet, and not to this machine, its network or its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for an address anybody on the Internet can reach. Addresses that carry another one inside (mapped,
/// translated, tunnelled) are judged by that.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The IANA registry of special-purpose IPv4 addresses, as prefix and length.
const SPECIAL_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !SPECIAL_V4.iter().any(|(prefix, length)| {
        let mask = u32::MAX << (32 - length);
        bits & mask == Ipv4Addr::from(*prefix).to_bits()
    })
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let bits = address.to_bits();
    let low = Ipv4Addr::from_bits(u32::try_from(bits & u128::from(u32::MAX)).unwrap_or_default());
    match (first, second) {
        // IPv4 mapped and the NAT64 prefix carry an IPv4 address at the end.
        (0, 0) if bits >> 32 == 0xffff => is_public_v4(low),
        (0x64, 0xff9b) if bits >> 32 == 0x0064_ff9b_0000_0000_0000_0000 => is_public_v4(low),
        // Teredo, documentation, benchmarking and 6to4 lie in the global range but lead elsewhere.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x2002, _) | (0x3fff, 0..=0xfff) => false,
        // All that is given out for global use lies in 2000::/3.
        _ => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_is_public() {
        let check = |address: &str, expected| assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        for address in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            check(address, true);
        }
        for address in ["127.0.0.1", "10.1.2.3", "172.31.255.255", "192.168.0.1", "169.254.169.254", "0.0.0.0"] {
            check(address, false);
        }
        for address in ["100.64.0.1", "224.0.0.1", "255.255.255.255", "198.19.0.1", "203.0.113.9"] {
            check(address, false);
        }
        for address in ["::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"] {
            check(address, false);
        }
        for address in ["64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::", "2001:db8::1", "::7f00:1"] {
            check(address, false);
        }
        check("64:ff9b::808:808", true);
    }
}
