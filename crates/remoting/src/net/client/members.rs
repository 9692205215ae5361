//! The clients that share one set of connections, and which of them a server's request is for.

use crate::command::Command;
use crate::net::link::pending::MemberId;
use crate::net::table::unsupported;
use crate::net::{Peer, Processor, ProcessorTable, Reply};
use crate::sync::{read, write};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The clients that share connections, each with the table of what it answers.
#[derive(Debug)]
pub(super) struct Members {
    list: RwLock<List>,
}

#[derive(Debug)]
struct List {
    last: MemberId,
    // None once the last one has left: nobody joins any more.
    members: Option<Vec<(MemberId, Arc<ProcessorTable>)>>,
}

impl Members {
    /// One member, and its id.
    pub(super) fn new(table: Arc<ProcessorTable>) -> (Arc<Self>, MemberId) {
        let first = MemberId::SERVER.next();
        let list = List {
            last: first,
            members: Some(vec![(first, table)]),
        };
        let list = RwLock::new(list);
        (Arc::new(Self { list }), first)
    }

    /// Adds a member; `None` if the last one has left.
    pub(super) fn join(&self, table: Arc<ProcessorTable>) -> Option<MemberId> {
        let mut list = self.write();
        let id = list.last.next();
        list.members.as_mut()?.push((id, table));
        list.last = id;
        Some(id)
    }

    /// Removes a member. True if it was the last one.
    pub(super) fn leave(&self, id: MemberId) -> bool {
        let mut list = self.write();
        let Some(members) = &mut list.members else {
            return false;
        };
        let place = members.iter().position(|(member, _)| *member == id);
        let gone = place.map(|place| members.remove(place));
        let is_last = members.is_empty();
        if is_last {
            list.members = None;
        }
        drop(list);
        // What its table holds ends without the lock.
        drop(gone);
        is_last
    }

    pub(super) fn is_closed(&self) -> bool {
        self.read().members.is_none()
    }

    /// The table of the first member that a request is for.
    fn table_for(&self, request: &Command) -> Option<Arc<ProcessorTable>> {
        let list = self.read();
        let mut members = list.members.iter().flatten();
        members
            .find(|(_, table)| table.get(request.code).is_some() && table.is_for(request))
            .map(|(_, table)| table.clone())
    }

    fn read(&self) -> RwLockReadGuard<'_, List> {
        read(&self.list)
    }

    fn write(&self) -> RwLockWriteGuard<'_, List> {
        write(&self.list)
    }
}

impl Processor for Members {
    fn process(&self, request: Command, peer: &Peer, reply: Reply) {
        match self.table_for(&request) {
            Some(table) => table.serve(request, peer, reply),
            None => reply.send(unsupported(request.code, "")),
        }
    }
}
