//! SplitMix64, so that a seed means the same walk everywhere.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which isn't 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn octets(&mut self, count: usize) -> Vec<u8> {
        let mut octets = Vec::with_capacity(count + 8);
        while octets.len() < count {
            octets.extend(self.next().to_be_bytes());
        }
        octets.truncate(count);
        octets
    }
}
