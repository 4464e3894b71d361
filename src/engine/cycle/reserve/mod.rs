//! Reservations: the first workload of a team that cannot start gets quota, nodes and a start time (law 7).
//!
//! A pool has at most one reservation a team, and at most [`review::MAX_RESERVATIONS`] with nodes. The owner gets nodes and
//! a time at once when the ends of the workloads in its way can be predicted, else when it has waited for its queue's
//! `reserve_after`. From then on a workload behind it in the order may backfill only if it ends before the reserved
//! start, or leaves the reserved capacity whole.
//!
//! A reservation ends when its owner starts, leaves or changes its request, or when a workload of the same team that
//! stands before the owner finds no capacity either. Its nodes and time stay too, unless they cannot be held any more
//! or an earlier time is possible. Capacity reserved for one team is masked for all others, owners included,
//! but not for an owner that goes first of two unless both have predicted starts: both would wait for ever.
//! A preemptor may take the place of workloads there that the owner waits for too.
//!
//! Two kinds of workloads stand before an owner: those before it in its own team, and those within guarantee when the
//! owner is not. The latter leave the reserved capacity whole where they can. Where only a reservation of their
//! own team, with no predictable time, is in the way of that, the younger of the two reservations is deferred until
//! the older's owner has started. Capacity nominated to preemptors is theirs.
//!
//! A reservation also protects the guarantee of its team. Once other teams have taken reserved capacity, workloads
//! behind the owner leave it the guarantee if that covers it: otherwise workloads within guarantee would take reserved
//! capacity again and again until the owner is within guarantee itself. And capacity reserved for a borrowing owner
//! counts as held by its team: no workload of another team is evicted for a sibling that could start there.
//!
//! Nodes and quota are described in the same words. A workload *stands before* an owner or behind it. A reservation *binds* a
//! workload that does not stand before its owner. Of what binds it, the workload *backfills* what it ends in time for, and *keeps*
//! the rest: it starts only where that stays *whole*. What does not bind it, it *spares*: it leaves that whole where it can
//! ([`claims`]). It *respects* all of these together, and takes the place of the others.
//!
//! Quota is kept level by level on the owner's path, nodes only from when it is free or expected to be. Where nothing tells
//! when it comes free, the owner gets the quota alone.
//!
//! ```text
//!   owners ─▶ review ─────────────────▶ whole ─▶ mask ─▶ binding
//!      └────────┴▶ quota ─────────────────│─────────────────▲
//!   admissible ─▶ siblings ─▶ beside ─────┴─▶ claims ───────┘
//!   instead ──────────────────────────────▲
//! ```

pub mod admissible;
pub mod beside;
pub mod binding;
pub mod claims;
pub mod instead;
pub mod mask;
pub mod owners;
pub mod quota;
pub mod review;
pub mod siblings;
pub mod whole;

pub use admissible::{admissible, leave_quotas_to_owners, note_taken, settle, sparing_all};
pub use binding::{binding, is_deferred};
pub use instead::{ReservedStarts, masks_beside_victims};
pub use mask::{masks_for, with_masked};
pub use owners::{
    drop_stale, is_full, lacks_capacity, may_become_owner, next, note_refusal, note_start, release,
    requeue_before, review_due, views,
};
pub use siblings::team_has_reserved_capacity;
