import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** Calls methods that exist only in some versions of the client. */
final class Reflect {
    private Reflect() {
    }

    /** Call a setter that takes one constant of an enum, named as text. */
    static void setEnum(Object target, String setter, String enumClass, String constant) throws Exception {
        Class<?> type = Class.forName(enumClass);
        for (Object candidate : type.getEnumConstants()) {
            if (((Enum<?>) candidate).name().equals(constant)) {
                target.getClass().getMethod(setter, type).invoke(target, candidate);
                return;
            }
        }
        throw new IllegalArgumentException("no constant of " + enumClass + ": " + constant);
    }

    /** Follow private fields from an object to one of its parts. */
    static Object part(Object whole, String... fields) throws Exception {
        Object found = whole;
        for (String name : fields) {
            Field field = found.getClass().getDeclaredField(name);
            field.setAccessible(true);
            found = field.get(found);
        }
        return found;
    }

    /** Call a getter if the client has it; otherwise return null. */
    static Object getIfThere(Object target, String getter) {
        try {
            return target.getClass().getMethod(getter).invoke(target);
        } catch (NoSuchMethodException missing) {
            return null;
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Call a setter of one primitive argument if the client has it; return whether it does. */
    static boolean setIfThere(Object target, String setter, Class<?> type, Object value) throws Exception {
        try {
            Method method = target.getClass().getMethod(setter, type);
            method.invoke(target, value);
            return true;
        } catch (NoSuchMethodException missing) {
            return false;
        }
    }
}
