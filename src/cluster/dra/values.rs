//! CEL values that Kubernetes adds for devices: quantities, versions, and maps by domain.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use cel::common::traits::{Container, Indexer, Iterable, Sizer};
use cel::common::types::{CelBool, CelInt, CelMap, CelMapKey, CelString, MAP_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use crate::engine::types::amount::Amount;

/// An amount with its unit, such as `80Gi`.
#[derive(Clone, Debug)]
pub struct Quantity(Amount);

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Version(pub semver::Version);

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");
static VERSION: Type = Type::new_unspecified_type("kubernetes.Semver");

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// The problem, with the text.
    pub fn read(text: &str) -> Result<Self, String> {
        Amount::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

impl Version {
    /// Parses a version.
    ///
    /// # Errors
    /// The problem.
    pub fn read(text: &str) -> Result<Self, String> {
        semver::Version::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

/// A value with a text form and an order.
pub trait Ordered: StaticVal + Sized {
    /// Parses the text form.
    fn parse(text: &str) -> Result<Self, String>;
    /// Compares two values.
    fn order(&self, other: &Self) -> Ordering;
}

impl Ordered for Quantity {
    fn parse(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
    fn order(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Ordered for Version {
    fn parse(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
    fn order(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }
}

/// Makes a type a CEL value.
macro_rules! value {
    ($type:ty, $name:ident) => {
        impl Val for $type {
            fn get_type(&self) -> &Type {
                &$name
            }
            fn cel_type() -> &'static Type {
                &$name
            }
            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<$type>().is_some_and(|other| self.order(other).is_eq())
            }
            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(self.clone())
            }
            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }
        impl StaticVal for $type {}
    };
}
value!(Quantity, QUANTITY);
value!(Version, VERSION);

/// Declares the parse function `name` and the comparison methods of a type.
///
/// # Errors
/// If the name is declared already.
pub fn add_ordered<T: Ordered>(env: &mut Env, name: &str) -> Result<(), DeclarationError> {
    let own = || T::cel_type().to_owned();
    env.add_overload(name, &format!("string_to_{name}"), vec![STRING_TYPE.to_owned()], read::<T>)?;
    env.add_member_overload("compareTo", &format!("{name}_compare_to"), own(), vec![own()], |args| {
        let order = compare::<T>(&args)?;
        Ok(CowVal::owned(CelInt::from(order as i64)))
    })?;
    env.add_member_overload(
        "isGreaterThan",
        &format!("{name}_is_greater_than"),
        own(),
        vec![own()],
        |args| Ok(CowVal::owned(CelBool::from(compare::<T>(&args)?.is_gt()))),
    )?;
    env.add_member_overload("isLessThan", &format!("{name}_is_less_than"), own(), vec![own()], |args| {
        Ok(CowVal::owned(CelBool::from(compare::<T>(&args)?.is_lt())))
    })
}

/// The first argument as text.
pub fn text<'a>(args: &'a [CowVal<'_, '_>]) -> Option<&'a str> {
    args.first().and_then(|arg| arg.downcast_ref::<CelString<'_>>()).map(CelString::inner)
}

fn read<'b, 'v, T: Ordered>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let text = text(&args).ok_or_else(ExecutionError::missing_argument_or_target)?;
    let read =
        T::parse(text).map_err(|problem| ExecutionError::function_error(T::cel_type().name(), problem))?;
    Ok(CowVal::owned(read))
}

fn compare<T: Ordered>(args: &[CowVal<'_, '_>]) -> Result<Ordering, ExecutionError> {
    let mut args = args.iter().map(|arg| arg.downcast_ref::<T>());
    match (args.next().flatten(), args.next().flatten()) {
        (Some(one), Some(other)) => Ok(one.order(other)),
        _ => Err(ExecutionError::missing_argument_or_target()),
    }
}

/// The attributes or capacities of a device, by domain and name. An unknown domain is an empty map.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    known: CelMap<'static>,
    none: CelMap<'static>,
}

impl Domains {
    /// Builds the map from the names of each domain.
    #[must_use]
    pub fn of(domains: BTreeMap<String, HashMap<CelMapKey<'static>, Box<dyn Val>>>) -> Self {
        let known = domains.into_iter().map(|(domain, names)| {
            let names: Box<dyn Val> = Box::new(CelMap::from(names));
            (CelMapKey::String(CelString::from(domain)), names)
        });
        Self { known: CelMap::from(known.collect::<HashMap<_, _>>()), none: CelMap::default() }
    }
}

impl Indexer for Domains {
    fn get<'b, 'v>(&'b self, domain: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match self.known.get(domain) {
            Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::Borrowed(&self.none)),
            found => found,
        }
    }

    fn steal<'v>(self: Box<Self>, domain: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        Indexer::get(&*self, domain).map(CowVal::into_owned)
    }
}

impl Val for Domains {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }
    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }
    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }
    fn as_container(&self) -> Option<&dyn Container> {
        self.known.as_container()
    }
    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        self.known.as_iterable()
    }
    fn as_sizer(&self) -> Option<&dyn Sizer> {
        self.known.as_sizer()
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Domains {}
