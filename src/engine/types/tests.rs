//! Every list of codes is complete.

use crate::types::*;

/// Holds `ALL` of an enum to its variants: the match refuses to compile while the list lacks one.
macro_rules! assert_complete {
    ($codes:ident: $($variant:ident),+ $(,)?) => {
        for code in $codes::ALL {
            match code {
                $($codes::$variant => assert_eq!(code.code(), stringify!($variant)),)+
            }
        }
        assert_eq!($codes::ALL, [$($codes::$variant),+]);
    };
}

#[test]
fn every_list_of_codes_is_complete() {
    assert_complete!(ResizeCause: Grown, Shrunk, Released, Replaced, Moved);
    assert_complete!(FailReason: MaxWait, MaxRuntime);
    assert_complete!(
        EvictReason: Reclaimed, Preempted, FairShare, Moved, NodeLost, PodLost, NotPlaced, NotReady, OverLimit, Requeued,
        QueueDrained,
    );
    assert_complete!(
        Reason:
        HeldByUser,
        OnHold,
        Incomplete,
        UnlikePods,
        Uncounted,
        NotYetConsidered,
        Guaranteed,
        Borrowed,
        NoNodeFits,
        NodesClosed,
        NoRoom,
        NotPlaced,
        NotReady,
        PodLost,
        Fragmented,
        Constrained,
        TeamLimit,
        QueueLimit,
        QueuePaused,
        BudgetSpent,
        NotPreemptibleOverGuarantee,
        LendingLimit,
        WaitingForEviction,
        RoomHeld,
        Reserved,
        Evicted,
        UnknownTeam,
        UnknownQueue,
        WaitedTooLong,
        Failing,
        WriteRefused,
        Finished,
    );
}
