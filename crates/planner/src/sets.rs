//! Sets of connected switches or fabrics.

/// Disjoint sets, by index.
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    /// Every one in a set of its own.
    pub fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The first of the set.
    pub fn first(&mut self, one: usize) -> usize {
        let mut first = one;
        while self.0[first] != first {
            self.0[first] = self.0[self.0[first]];
            first = self.0[first];
        }
        first
    }

    pub fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.first(a), self.first(b));
        self.0[a.max(b)] = a.min(b);
    }
}
